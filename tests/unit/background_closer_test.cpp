// SPDX-License-Identifier: BSD-3-Clause
// Sockets whose close waits, because descriptors were sent to them.
#include "os/background_closer.hpp"
#include "os/message.hpp"
#include "support/host/lingering.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::os::background_closer_test {
namespace {

using testing::lingering_socket;
using testing::lingers_for;

constexpr std::chrono::seconds soon{60};  // for what a busy machine does late

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

// All closers of a process share their thread, so each test has a process of its own.

TEST(background_closer, no_close_waits_although_one_lasts_and_neither_does_the_end) {
  testing::run_in_child([] {
    auto sockets = lingering(1);
    const auto began = std::chrono::steady_clock::now();
    {
      const background_closer closer(false);
      for (auto& [here, there] : sockets) closer.close(std::move(here));
      closer.close(std::move(pair()[0]));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, lingers_for / 2);
  });
}

TEST(background_closer, has_no_room_while_many_sockets_wait) {
  testing::run_in_child([] {
    auto sockets = lingering(1);
    const background_closer closer(false);
    closer.close(std::move(sockets[0][0]));
    EXPECT_TRUE(closer.has_room());
    // The thread closes the newest first: once it is in the close that lingers, the others stay.
    ASSERT_TRUE(readable_within(sockets[0][1], soon));
    for (std::size_t i = 0; i < background_closer::most; ++i) closer.close(std::move(pair()[0]));
    EXPECT_FALSE(closer.has_room());
    EXPECT_FALSE(background_closer(false).has_room());
  });
}

/// Closes sockets; returns the other ends.
std::vector<file> close_pairs(const background_closer& by, std::size_t count) {
  std::vector<file> others;
  for (std::size_t i = 0; i < count; ++i) {
    auto made = pair();
    others.push_back(std::move(made[1]));
    by.close(std::move(made[0]));
  }
  return others;
}

TEST(background_closer, keeps_no_caller_waiting_without_room) {
  testing::run_in_child([] {
    auto sockets = lingering(2);
    const background_closer closer(false);
    const auto began = std::chrono::steady_clock::now();
    closer.close(std::move(sockets[0][0]));
    for (std::size_t i = 0; i < 10 * background_closer::most; ++i) closer.close(std::move(pair()[0]));
    closer.close(std::move(sockets[1][0]));
    EXPECT_LT(std::chrono::steady_clock::now() - began, lingers_for / 2);
  });
}

TEST(background_closer, starts_its_thread_again_once_that_is_possible) {
  if (testing::sanitized) GTEST_SKIP() << "the sanitizer's own mappings need the address space";
  testing::run_in_child([] {
    const background_closer closer(false);
    std::vector<file> others;
    {
      const testing::room_for_threads none(0);
      while (closer.has_room()) others.push_back(std::move(close_pairs(closer, 1).front()));
    }
    static_cast<void>(closer.has_room());
    EXPECT_TRUE(readable_within(others.back(), soon));
    EXPECT_TRUE(readable_within(others.front(), soon));
  });
}

TEST(background_closer, closes_each_socket_once_for_many_threads) {
  testing::run_in_child([] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([] {
        for (int round = 0; round < 500; ++round) {
          const auto other = close_pairs(background_closer(false), 1);
          EXPECT_TRUE(readable_within(other.front(), soon));
        }
      });
  });
}

TEST(background_closer, has_a_thread_of_its_own_in_a_forked_child) {
  testing::run_in_child([] {
    auto sockets = lingering(1);
    const background_closer closer(false);
    closer.close(std::move(sockets[0][0]));
    const auto others = close_pairs(closer, 2 * background_closer::most);
    testing::child_process child([&](testing::line&) {
      const auto until = std::chrono::steady_clock::now() + lingers_for / 2;
      const auto own = close_pairs(closer, 1);
      const bool closed = readable_within(own.front(), lingers_for / 2);
      // The newest is closed first: the parent's, which the child inherits, follow.
      while (!closer.has_room() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      return closed && closer.has_room() ? 0 : 1;
    });
    EXPECT_EQ(child.reap(), 0);
  });
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
