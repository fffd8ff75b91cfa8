// SPDX-License-Identifier: BSD-3-Clause
// Whether a handle could be opened, and why not, before anything is tried.
#include <pinfold/import_cache.hpp>

#include "fd_passing/host.hpp"
#include "fd_passing/wire.hpp"
#include "support/fixtures/memfd_test.hpp"
#include "support/host/privileges.hpp"
#include "support/processes/main_thread.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

namespace can_open_test {
namespace {

using namespace pinfold;
using namespace pinfold::testing;

class can_open : public memfd_pair {
 protected:
  [[nodiscard]] result<void> asked(const memfd_handle& of) const { return reader.can_open(of); }
  memfd_handle handle = peer.allocate(64 * kib, 1);
};

INSTANTIATE_TEST_SUITE_P(via, can_open, ::testing::Values(memfd_via::automatic, memfd_via::pidfd, memfd_via::scm),
                         each_via::name);

TEST_P(can_open, memory_of_a_running_exporter_can_be_opened) {
  const int mappings = memfd_mappings();
  EXPECT_TRUE(asked(handle)) << describe(asked(handle).error());
  EXPECT_EQ(memfd_mappings(), mappings);
  EXPECT_EQ(reader.held(), 0U);
  expect_round_trip(reader, handle, 1);
}

TEST_P(can_open, a_cache_asks_its_importer) {
  const import_cache<memfd_importer> cache(importer());
  EXPECT_TRUE(cache.can_open(handle));
  EXPECT_EQ(cache.statistics().misses, 0U);
  EXPECT_EQ(cache.can_open({}).error(), errc::invalid_handle);
}

TEST_P(can_open, a_dead_exporter_is_told_as_by_open) {
  peer.process().kill();
  EXPECT_EQ(asked(handle).error(), errc::peer_gone);
  peer.process().reap();
  EXPECT_EQ(asked(handle).error(), errc::peer_gone);
  EXPECT_EQ(reader.open(any_peer, handle).error(), errc::peer_gone);
}

TEST_P(can_open, another_host_is_told_and_refused) {
  auto foreign = handle;
  foreign.host ^= 1;
  foreign = memfd::completed(foreign);
  EXPECT_EQ(asked(foreign).error(), errc::unsupported);
  EXPECT_EQ(reader.open(any_peer, foreign).error(), errc::unsupported);
  foreign.host = 0;  // unknown, as in handles of earlier releases
  EXPECT_TRUE(asked(memfd::completed(foreign)));
}

TEST_P(can_open, damage_is_told) {
  auto damaged = handle;
  damaged.size += 1;
  EXPECT_EQ(asked(damaged).error(), errc::invalid_handle);
}

TEST_P(can_open, a_reader_that_writes_is_told_of_memory_for_reading) {
  EXPECT_EQ(importer(memfd_access::read_write).can_open(handle).error(), errc::not_permitted);
}

TEST_P(can_open, an_exporter_whose_process_is_recycled_is_gone) {
  if (GetParam() == memfd_via::scm) return;  // the socket's name is enough
  auto recycled = handle;
  recycled.start_time += 1;
  EXPECT_EQ(asked(memfd::completed(recycled)).error(), errc::peer_gone);
}

TEST(can_open_without_socket, scm_says_that_the_exporter_does_not_serve) {
  exporter_peer silent;
  const auto handle = silent.allocate(64 * kib, 1);
  const memfd_importer reader({.via = memfd_via::scm});
  EXPECT_EQ(reader.can_open(handle).error(), errc::unsupported);
  EXPECT_EQ(needs(handle), handle_needs::same_host | handle_needs::exporter_runs | handle_needs::same_user);
}

TEST(can_open_of_another_user, is_told_as_by_open) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  exporter_peer peer({.serve = true});
  const auto handle = peer.allocate(64 * kib, 1);
  child_process other([&](line& parent) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 2;
    for (const auto via : {memfd_via::pidfd, memfd_via::scm, memfd_via::automatic}) {
      memfd_importer reader({.via = via});
      const auto asked = reader.can_open(handle);
      const auto opened = reader.open(any_peer, handle);
      parent.send(asked ? -1 : static_cast<int>(asked.error().code));
      parent.send(opened ? -1 : static_cast<int>(opened.error().code));
    }
    return 0;
  });
  for (int via = 0; via < 3; ++via) {
    EXPECT_EQ(other.talk().receive<int>(), static_cast<int>(errc::not_permitted)) << via;
    EXPECT_EQ(other.talk().receive<int>(), static_cast<int>(errc::not_permitted)) << via;
  }
}

TEST(can_open_without_main_thread, the_socket_still_serves) {
  child_process exporting([](line& parent) -> int {
    end_main_thread([&parent] {
      auto exporter = memfd_exporter::create({.serve = true}).value();
      const auto buffer = exporter.allocate(64 * kib).value();
      const bool told = wait_for_end_of_main_thread(::getpid()) && parent.send(buffer.handle());
      return told && !parent.receive<int>() ? 0 : 1;
    });
  });
  const auto handle = exporting.talk().receive<memfd_handle>();
  ASSERT_TRUE(handle);
  for (const auto via : {memfd_via::automatic, memfd_via::scm}) {
    memfd_importer reader({.via = via});
    EXPECT_TRUE(reader.can_open(*handle));
    EXPECT_TRUE(reader.open(any_peer, *handle));
  }
  memfd_importer direct({.via = memfd_via::pidfd});
  EXPECT_EQ(direct.can_open(*handle).error(), errc::unsupported);
  EXPECT_EQ(direct.open(any_peer, *handle).error(), errc::unsupported);
}

/// Listens at a path, or at an abstract name, which end as an exporter's name.
os::file listening_at(const std::string& name, bool abstract) {
  os::file made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(at.sun_path + (abstract ? 1 : 0), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(made.number(), reinterpret_cast<const sockaddr*>(&at), bytes) != 0 || ::listen(made.number(), 1) != 0)
    return {};
  return made;
}

TEST(can_open_of_another_socket, says_that_the_exporter_does_not_serve) {
  exporter_peer silent;
  const auto handle = silent.allocate(64 * kib, 1);
  const memfd_importer reader({.via = memfd_via::scm});
  const auto address = fd_passing::address_of(handle.exporter);
  const std::string name(address.name.sun_path + 1, address.bytes - offsetof(sockaddr_un, sun_path) - 1);
  const std::string in_folder = "/tmp/x@" + name;
  for (const auto& [other, abstract] :
       {std::pair(in_folder, false), std::pair(in_folder, true), std::pair("@" + name, true),
        std::pair(name + "0", true), std::pair("a name\n0: 2 0 10000 5 1 7 @" + name + "\n", true)}) {
    const auto listening = listening_at(other, abstract);
    ASSERT_TRUE(listening) << other;
    const auto asked = reader.can_open(handle);
    EXPECT_TRUE(!asked && asked.error() == errc::unsupported) << other;
  }
  ::unlink(in_folder.c_str());
}

TEST(can_open_moved, a_moved_importer_is_closed) {
  memfd_importer first;
  const memfd_importer second(std::move(first));
  EXPECT_EQ(first.can_open({}).error(), errc::closed);  // NOLINT(bugprone-use-after-move): the subject of the test
}

TEST(host_number, depends_on_the_boot) {
  EXPECT_NE(fd_passing::host_number("one"), fd_passing::host_number("other"));
  EXPECT_NE(fd_passing::this_host(), 0U);
  EXPECT_TRUE(fd_passing::may_be_this_host(0));
}

}  // namespace
}  // namespace can_open_test
