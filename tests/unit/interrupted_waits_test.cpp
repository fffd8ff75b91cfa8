// SPDX-License-Identifier: BSD-3-Clause
// Waits of importers and of clients of `monitord` in programs whose threads get signals all the time.
#include "fd_passing/client.hpp"
#include "monitors/bpf/client.hpp"
#include "monitors/bpf/wire.hpp"
#include "os/file.hpp"
#include "support/answer_times.hpp"
#include "support/host/interrupter.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace pinfold::testing::interrupted_waits_test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// Returns how long the call takes while signals interrupt it.
template <class Call>
steady_clock::duration time_of(std::chrono::milliseconds interval, int times, Call&& call) {
  const interrupter interrupting(interval, times);
  const auto began = steady_clock::now();
  call();
  return steady_clock::now() - began;
}

/// A socket that listens, and accepts nothing.
os::file deaf_at(const sockaddr_un& name, socklen_t bytes, int backlog) {
  os::file made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(made.number(), reinterpret_cast<const sockaddr*>(&name), bytes), 0);
  EXPECT_EQ(::listen(made.number(), backlog), 0);
  return made;
}

TEST(interrupted_waits, end_in_time_for_what_cannot_be_read) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const os::file here(ends[0]);
  const os::file there(ends[1]);
  EXPECT_LT(time_of(20ms, 4000, [&] { EXPECT_FALSE(os::readable_within(here, 100ms)); }), 60s);
}

TEST(interrupted_waits, end_in_time_at_a_socket_where_too_many_wait) {
  const usual_answer_times usual;
  const fd_passing::exporter_id from{(static_cast<std::uint64_t>(::getpid()) << 32U) + 77, 0, 0};
  const auto at = fd_passing::address_of(from.exporter);
  const auto listener = deaf_at(at.name, at.bytes, 0);
  const auto first = fd_passing::connect_to(from);
  ASSERT_TRUE(first);
  const auto took = time_of(1s, 100, [&] { EXPECT_EQ(fd_passing::connect_to(from).error(), errc::timed_out); });
  EXPECT_LT(took, fd_passing::answer_timeout + 60s);
}

TEST(interrupted_waits, end_in_time_for_a_server_of_monitors_that_is_stopped) {
  const usual_answer_times usual;
  const auto name = "@pinfold-test-deaf-" + std::to_string(::getpid());
  const auto at = monitors::bpf_address::of(name).value();
  const auto listener = deaf_at(at.name, at.bytes, 5);
  const auto took = time_of(1s, 100, [&] { EXPECT_EQ(monitors::bpf_subscribe_at(name).error(), errc::timed_out); });
  EXPECT_LT(took, 65s);
}

}  // namespace
}  // namespace pinfold::testing::interrupted_waits_test
