// SPDX-License-Identifier: BSD-3-Clause
// A listener whose answers the caller carries calls `send` without a lock, in the order of the answers (R66).
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/registry.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/host/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::carried_listener_test {
namespace {

using namespace std::chrono_literals;
using release_cache = import_cache<releasing_importer<memfd_importer>>;
using enum release_state;

constexpr std::size_t page = 4096;
constexpr peer_id peer{1};

release_message request_for(const release_id& id) {
  release_message made{.exporter = id.exporter, .serial = id.serial, .retirement = 1};
  made.kind = release_kind::request;
  return sealed(made);
}

struct said {
  std::uint64_t serial;
  release_state state;
  friend bool operator==(const said&, const said&) = default;
};

/// A listener that records what it sends, and then calls `inside`. Each test ends with the process if it hangs.
class carried_listener : public ::testing::Test {
 protected:
  [[nodiscard]] release_listener make() {
    return release_listener::create([this](const release_message& answer) {
             EXPECT_FALSE(busy.exchange(true)) << "one call at a time, and not within itself";
             sent.push_back({answer.serial, answer.state});
             if (inside) inside(answer);
             busy = false;
           })
        .value();
  }
  void open_without_a_cache(std::uint64_t serial) {
    numbers[serial] = listener->begin_open({.id = {1, serial}, .where = {page, 2 * page}}).value();
  }
  void close(std::uint64_t serial) { listener->closed({1, serial}, numbers[serial]); }

  watchdog limit{[] {}};
  std::atomic<bool> busy{false};
  std::vector<said> sent;  ///< guarded by the listener, which calls `send` on one thread at a time
  std::function<void(const release_message&)> inside;
  std::map<std::uint64_t, std::uint64_t> numbers;
  std::optional<release_listener> listener{make()};
};

/// Two buffers of an exporter, and a cache of them.
class carried_cache : public carried_listener {
 protected:
  [[nodiscard]] release_cache::lease lease(const memfd_buffer& of) {
    return cache.acquire(peer, of.handle(), of.handle().base, page).value();
  }
  [[nodiscard]] static release_message request(const memfd_buffer& of) {
    return request_for({of.handle().exporter, of.handle().serial});
  }
  [[nodiscard]] static said says(const memfd_buffer& of, release_state state) { return {of.handle().serial, state}; }

  memfd_exporter exporter = memfd_exporter::create().value();
  memfd_buffer one = exporter.allocate(page).value();
  memfd_buffer other = exporter.allocate(page).value();
  release_cache cache{releasing_importer<memfd_importer>(memfd_importer(), *listener)};
  release_listener::attachment attached = listener->attach(cache).value();
};

}  // namespace

TEST_F(carried_cache, R66_send_may_release_the_lease_that_it_reports) {
  auto leased = lease(one);
  inside = [&](const release_message& answer) {
    if (answer.state != release_state::leased) return;
    EXPECT_TRUE(leased.release());
  };
  listener->receive(request(one));
  EXPECT_EQ(sent, (std::vector{says(one, release_state::leased), says(one, gone)}));
  EXPECT_EQ(listener->statistics().mappings, 0U);
}

TEST_F(carried_cache, R66_send_may_pass_the_next_message_to_the_listener) {
  auto leased = lease(one);
  EXPECT_TRUE(lease(other).release());
  inside = [&](const release_message& answer) {
    if (answer.serial == one.handle().serial) listener->receive(request(other));
  };
  listener->receive(request(one));
  EXPECT_EQ(sent, (std::vector{says(one, release_state::leased), says(other, gone)}));
}

TEST_F(carried_cache, R66_send_may_do_so_while_a_lease_is_released) {
  auto leased = lease(one);
  auto also = lease(other);
  listener->receive(request(one));
  inside = [&](const release_message& answer) {
    if (answer.serial != one.handle().serial) return;
    listener->receive(request(other));
    EXPECT_TRUE(also.release());
    listener->progress();
    EXPECT_EQ(listener->statistics().retiring, 0U);
  };
  EXPECT_TRUE(leased.release());
  listener->progress();
  EXPECT_EQ(sent, (std::vector{says(one, release_state::leased), says(one, gone), says(other, release_state::leased),
                               says(other, gone)}));
}

TEST_F(carried_listener, R66_a_thread_leaves_its_answers_to_the_one_that_sends) {
  std::promise<void> entered;
  std::promise<void> leave;
  inside = [&](const release_message& answer) {
    if (answer.serial != 1) return;
    entered.set_value();
    leave.get_future().wait();
  };
  open_without_a_cache(2);
  std::thread sends([&] { listener->receive(request_for({1, 1})); });
  entered.get_future().wait();
  listener->receive(request_for({1, 2}));
  close(2);
  EXPECT_EQ(sent, (std::vector{said{1, unknown}}));
  EXPECT_EQ(listener->statistics().requests, 2U);
  leave.set_value();
  sends.join();
  EXPECT_EQ(sent, (std::vector{said{1, unknown}, said{2, leased}, said{2, gone}}));
}

TEST_F(carried_listener, R66_the_answers_of_several_threads_keep_their_order) {
  constexpr std::uint64_t threads = 4;
  constexpr std::uint64_t rounds = 500;
  inside = [](const release_message& answer) {
    if (answer.serial % 16 == 0) std::this_thread::yield();
  };
  std::vector<std::thread> all;
  for (std::uint64_t thread = 0; thread < threads; ++thread)
    all.emplace_back([this, thread] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const release_id id{1, (round * threads) + thread};
        const auto first = listener->begin_open({.id = id, .where = {page, 2 * page}}).value();
        const auto second = listener->begin_open({.id = id, .where = {page, 2 * page}}).value();
        listener->receive(request_for(id));
        listener->closed(id, first);
        listener->receive(request_for(id));
        listener->closed(id, second);
        listener->receive(request_for(id));
      }
    });
  for (std::thread& one : all) one.join();
  std::map<std::uint64_t, std::vector<release_state>> by_memory;
  for (const said& one : sent) by_memory[one.serial].push_back(one.state);
  EXPECT_EQ(by_memory.size(), threads * rounds);
  for (const auto& [serial, states] : by_memory)
    EXPECT_EQ(states, (std::vector{leased, leased, gone, unknown})) << serial;
}

TEST_F(carried_listener, R66_requests_that_race_with_the_last_close_are_answered_in_order) {
  constexpr std::uint64_t rounds = 500;
  for (std::uint64_t serial = 1; serial <= rounds; ++serial) {
    open_without_a_cache(serial);
    sent.clear();
    std::atomic<int> ready{0};
    const auto together = [&](auto body) {
      return std::thread([&ready, body] {
        ++ready;
        while (ready < 3) std::this_thread::yield();
        body();
      });
    };
    std::thread asks = together([&] { listener->receive(request_for({1, serial})); });
    std::thread asks_too = together([&] { listener->receive(request_for({1, serial})); });
    std::thread closes = together([&] { close(serial); });
    for (std::thread* one : {&asks, &asks_too, &closes}) one->join();
    // After `gone` and `unknown`, the exporter does not count the importer any more.
    ASSERT_FALSE(sent.empty());
    bool left = false;
    for (const said& one : sent) {
      EXPECT_FALSE(left && one.state == leased) << "in round " << serial;
      left = left || one.state != leased;
    }
    EXPECT_TRUE(left);
  }
}

TEST_F(carried_listener, R66_an_answer_that_send_refuses_is_sent_again_in_its_turn) {
  bool full = true;
  std::vector<said> carried;
  listener = release_listener::create([&](const release_message& answer) -> result<void> {
               if (full) return fail_errno(errc::driver_error, EAGAIN, "the channel is full");
               carried.push_back({answer.serial, answer.state});
               return {};
             }).value();
  open_without_a_cache(1);
  EXPECT_EQ(listener->receive(request_for({1, 1})).error().native, EAGAIN);
  EXPECT_EQ(listener->receive(request_for({1, 2})).error(), errc::driver_error);
  close(1);
  EXPECT_EQ(listener->statistics().unsent, 3U);
  EXPECT_EQ(listener->progress().error().native, EAGAIN);
  full = false;
  EXPECT_TRUE(listener->progress());
  EXPECT_EQ(carried, (std::vector{said{1, leased}, said{2, unknown}, said{1, gone}}));
  EXPECT_EQ(listener->statistics().unsent, 0U);
}

TEST_F(carried_listener, R66_a_listener_needs_a_function_that_sends) {
  EXPECT_EQ(release_listener::create(release_listener::send_call()).error(), errc::invalid_argument);
  EXPECT_EQ(release_listener::create(std::function<void(const release_message&)>()).error(), errc::invalid_argument);
}

TEST_F(carried_listener, R66_its_end_waits_for_the_thread_in_send) {
  std::promise<void> entered;
  std::atomic<bool> left{false};
  inside = [&](const release_message&) {
    entered.set_value();
    std::this_thread::sleep_for(50ms);
    left = true;
  };
  std::thread sends([&listener = *listener] { listener.receive(request_for({1, 1})); });
  entered.get_future().wait();
  listener.reset();
  EXPECT_TRUE(left);
  sends.join();
}

TEST_F(carried_listener, R66_send_may_destroy_its_listener) {
  open_without_a_cache(1);
  inside = [&](const release_message&) {
    close(1);  // its answer is not sent any more
    listener.reset();
  };
  listener->receive(request_for({1, 1}));
  EXPECT_EQ(sent, (std::vector{said{1, leased}}));
}

}  // namespace pinfold::testing::carried_listener_test
