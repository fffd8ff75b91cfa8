// SPDX-License-Identifier: BSD-3-Clause
// The exporter's thread frees retired memory: when, in which order, and what its reports say meanwhile.
#include "release/server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace pinfold::release {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t exporter = 0x5ee5;

/// A server with an own number, and memory that one importer may hold.
class retired_memory : public ::testing::Test {
 protected:
  static server_owner started(std::size_t limbo_bytes = SIZE_MAX) {
    static std::uint64_t last = exporter + (static_cast<std::uint64_t>(::getpid()) << 32U);
    return server::start(++last, limbo_bytes).value();
  }
  static retirement begin(
      server& in, std::uint64_t serial, std::size_t bytes, std::chrono::milliseconds timeout,
      free_call free = [] { return result<void>(); }) {
    return in.begin(serial, bytes, timeout, free).value();
  }
};

}  // namespace

TEST_F(retired_memory, its_free_may_end_the_server) {
  for (int i = 0; i < 20; ++i) {
    auto shared = std::make_shared<server_owner>(started());
    ASSERT_TRUE((*shared)->registry()->add(1));
    std::promise<void> ended;
    server& in = **shared;
    std::atomic<bool> dropped{false};
    free_call free = [self = shared, &ended, &dropped]() mutable -> result<void> {
      while (!dropped) std::this_thread::yield();
      self.reset();
      ended.set_value();
      return {};
    };
    const auto ticket = begin(in, 1, 10, 0ms, std::move(free));
    shared.reset();
    dropped = true;
    ended.get_future().wait();
    EXPECT_TRUE(ticket.wait(5s).value().all_let_go());
  }
}

}  // namespace pinfold::release
