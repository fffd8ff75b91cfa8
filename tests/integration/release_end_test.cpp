// SPDX-License-Identifier: BSD-3-Clause
// An importer of much memory ends while its exporter does not read (R66). The exporter is a child.
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/answer_times.hpp"
#include "support/full_backlog.hpp"
#include "support/host/once_within.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::release_end_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t buffers = 800;  // more than a socket has room for messages
constexpr std::size_t page = 4096;

/// Sends the handles, and then what importers did not let go.
int export_memory(line& parent) {
  auto exporter = memfd_exporter::create({.release = true}).value();
  std::vector<memfd_buffer> lent;
  for (std::size_t i = 0; i < buffers; ++i) {
    lent.push_back(exporter.allocate(page).value());
    if (!parent.send(lent.back().handle())) return 1;
  }
  if (!parent.receive<bool>()) return 2;
  std::size_t kept = 0;
  for (auto& one : lent) kept += exporter.retire(std::move(one), kept == 0 ? 2s : 0s).value().holders.size();
  return parent.send(kept) ? 0 : 3;
}

/// Returns how much an exporter that reads late keeps after the end of its importer; more than there is if it fails.
std::size_t kept_by_a_late_exporter() {
  child_process exporter(export_memory);
  std::thread later;
  {
    auto listener = release_listener::create().value();
    import_cache cache(releasing_importer<memfd_importer>(memfd_importer(), listener));
    const auto attached = listener.attach(cache).value();
    for (std::size_t i = 0; i < buffers; ++i) {
      const auto handle = exporter.talk().receive<memfd_handle>().value();
      if (!cache.acquire({1}, handle, handle.base, page)) return buffers + 1;
    }
    exporter.stop();
    later = std::thread([&] {
      std::this_thread::sleep_for(300ms);
      exporter.go_on();
    });
  }
  later.join();
  const auto kept = exporter.ask<std::size_t>(true);
  return exporter.reap() == 0 ? kept : buffers + 1;
}

}  // namespace

// The end of an importer waits a second for an exporter. On a busy machine that may not read in time.
TEST(release_end, R66_all_is_let_go_although_the_exporter_reads_late) {
  auto least = buffers + 1;
  for (int tries = 0; tries < 10 && least > 0; ++tries) least = std::min(least, kept_by_a_late_exporter());
  EXPECT_EQ(least, 0U);
}

void costs_the_time_for_an_answer_once(bool without_room) {
  child_process exporter(export_memory);
  const auto handle = exporter.talk().receive<memfd_handle>().value();
  auto listener = release_listener::create().value();
  const auto open = [&] {
    return listener.begin_open(
        {{handle.exporter, handle.serial}, {1}, handle.allocation(), handle.start_time, handle.pid});
  };
  const usual_answer_times usual;
  exporter.stop();
  const fd_passing::exporter_id from{handle.exporter, handle.start_time, handle.pid};
  ASSERT_TRUE(!without_room || fill_backlog(from, fd_passing::socket_purpose::release));
  EXPECT_EQ(open().error(), errc::timed_out);
  EXPECT_TRUE(once_within(2500ms, [&] {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(open().error(), errc::timed_out);
  }));
  exporter.go_on();
  bool admitted = false;
  for (int i = 0; i < 6000 && !admitted; ++i, std::this_thread::sleep_for(10ms)) admitted = open().has_value();
  EXPECT_TRUE(admitted);
}

TEST(release_end, R66_a_stopped_exporter_costs_the_time_for_an_answer_once) {
  costs_the_time_for_an_answer_once(false);
}
TEST(release_end, R66_a_stopped_exporter_without_room_for_connections_costs_the_time_for_one_once) {
  costs_the_time_for_an_answer_once(true);
}

}  // namespace pinfold::testing::release_end_test
