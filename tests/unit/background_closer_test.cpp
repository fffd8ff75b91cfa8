// SPDX-License-Identifier: BSD-3-Clause
// Sockets whose close waits, because descriptors were sent to them.
#include "os/background_closer.hpp"
#include "os/message.hpp"
#include "support/host/lingering.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace pinfold::os::background_closer_test {
namespace {

using testing::lingering_socket;
using testing::lingers_for;

std::array<file, 2> pair() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {file(ends[0]), file(ends[1])};
}

int send_descriptor(const file& to, const file& sent) {
  const std::byte body{};
  const int number = sent.number();
  return send_message(to.number(), {&body, 1}, {&number, 1}, MSG_DONTWAIT);
}

/// Sockets that have the last reference to what lingers, and their other ends.
std::vector<std::array<file, 2>> lingering(std::size_t count) {
  std::vector<std::array<file, 2>> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.push_back(pair());
    const file sent(lingering_socket());
    EXPECT_TRUE(sent);
    EXPECT_EQ(send_descriptor(made.back()[1], sent), 0);
  }
  return made;
}

}  // namespace

TEST(background_closer, no_close_waits_although_one_lasts_and_neither_does_the_end) {
  auto sockets = lingering(1);
  const auto began = std::chrono::steady_clock::now();
  {
    background_closer closer(false);
    for (auto& [here, there] : sockets) closer.close(std::move(here));
    auto other = pair();
    closer.close(std::move(other[0]));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, lingers_for / 2);
}

TEST(background_closer, has_no_room_while_many_sockets_wait) {
  auto sockets = lingering(1);
  background_closer closer(false);
  closer.close(std::move(sockets[0][0]));  // if the thread takes this one first
  EXPECT_TRUE(closer.has_room());
  std::vector<file> others;
  for (std::size_t i = 0; i < background_closer::most + 1; ++i) {
    auto made = pair();
    others.push_back(std::move(made[1]));
    closer.close(std::move(made[0]));
  }
  const bool full = !closer.has_room();
  const bool all_closed = readable_within(others.front(), std::chrono::milliseconds{0});
  EXPECT_TRUE(full || all_closed);
}

TEST(background_closer, closes_at_once_where_no_close_waits) {
  background_closer closer(true);
  auto ends = pair();
  closer.close(std::move(ends[0]));
  EXPECT_TRUE(readable_within(ends[1], std::chrono::milliseconds{0}));
  EXPECT_TRUE(closer.has_room());
}

TEST(message, descriptors_are_refused_until_they_are_accepted) {
  const auto ends = pair();
  if (!refuse_descriptors(ends[0])) GTEST_SKIP() << "needs Linux 6.16";
  EXPECT_EQ(send_descriptor(ends[1], ends[1]), EPERM);
  accept_descriptors(ends[0]);
  EXPECT_EQ(send_descriptor(ends[1], ends[1]), 0);
}

TEST(message, descriptors_are_seen_before_they_are_received) {
  const auto ends = pair();
  EXPECT_FALSE(next_has_descriptors(ends[0]));
  const std::byte body{};
  ASSERT_EQ(send_message(ends[1].number(), {&body, 1}, {}, MSG_DONTWAIT), 0);
  ASSERT_EQ(send_descriptor(ends[1], ends[1]), 0);
  EXPECT_FALSE(next_has_descriptors(ends[0]));
  std::byte read{};
  EXPECT_EQ(receive_message(ends[0].number(), {&read, 1}, {}, 0).bytes, 1);
  EXPECT_TRUE(next_has_descriptors(ends[0]));
}

}  // namespace pinfold::os::background_closer_test
