// SPDX-License-Identifier: BSD-3-Clause
// What bounds the clients of `pinfold metrics --listen`.
#include "metrics/connections.hpp"
#include "metrics/recent.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::metrics_server_parts_test {
namespace {

using namespace std::chrono_literals;

/// A connection's two ends.
struct connected {
  std::array<int, 2> ends{-1, -1};

  connected() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0); }
  connected(const connected&) = delete;
  connected& operator=(const connected&) = delete;
  ~connected() {
    for (const int one : ends) ::close(one);
  }

  [[nodiscard]] bool is_cut() const {
    char one = 0;
    return ::recv(ends[1], &one, 1, MSG_DONTWAIT) == 0;
  }
};

TEST(metrics_connections, cuts_the_oldest_where_another_needs_room) {
  constexpr std::size_t most = 3;
  std::vector<connected> clients(2 * most);
  tool::connections all(most);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    all.begun(clients[i].ends[0]);
    for (std::size_t j = 0; j < clients.size(); ++j) EXPECT_EQ(clients[j].is_cut(), j + most <= i) << i << " " << j;
  }
}

TEST(metrics_connections, those_that_ended_need_no_room) {
  std::vector<connected> clients(4);
  tool::connections all(2);
  for (const auto& one : clients) {
    all.begun(one.ends[0]);
    if (&one != &clients.front()) all.ended(one.ends[0]);
  }
  for (const auto& one : clients) EXPECT_FALSE(one.is_cut());
  all.cut_older_than(-1h);
  EXPECT_TRUE(clients.front().is_cut());
  EXPECT_FALSE(clients.back().is_cut());
}

/// A clock that the test sets.
struct set_clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<set_clock, duration>;
  static inline time_point at{};
  static time_point now() { return at; }
};

TEST(metrics_recent, is_shared_until_it_is_old) {
  tool::recent<std::shared_ptr<int>, set_clock> text(1s);
  int made = 0;
  const auto get = [&] { return text.get([&] { return std::make_shared<int>(++made); }); };
  const auto first = get();
  set_clock::at += 999ms;
  EXPECT_EQ(get(), first);
  set_clock::at += 1ms;
  EXPECT_EQ(*get(), 2);
  set_clock::at += 1s;
  EXPECT_THROW(static_cast<void>(text.get([]() -> std::shared_ptr<int> { throw std::runtime_error("no memory"); })),
               std::runtime_error);
  EXPECT_EQ(*get(), 3);
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace pinfold::testing::metrics_server_parts_test
