// SPDX-License-Identifier: BSD-3-Clause
// An importer of much memory ends while its exporter does not read (R66). The exporter is a child.
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

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

}  // namespace

TEST(release_end, R66_all_is_let_go_although_the_exporter_reads_late) {
  child_process exporter(export_memory);
  std::thread later;
  {
    auto listener = release_listener::create().value();
    import_cache cache(releasing_importer<memfd_importer>(memfd_importer(), listener));
    const auto attached = listener.attach(cache).value();
    for (std::size_t i = 0; i < buffers; ++i) {
      const auto handle = exporter.talk().receive<memfd_handle>().value();
      ASSERT_TRUE(cache.acquire({1}, handle, handle.base, page));
    }
    exporter.stop();
    later = std::thread([&] {
      std::this_thread::sleep_for(300ms);
      exporter.go_on();
    });
  }
  later.join();
  EXPECT_EQ(exporter.ask<std::size_t>(true), 0U);
  EXPECT_EQ(exporter.reap(), 0);
}

}  // namespace pinfold::testing::release_end_test
