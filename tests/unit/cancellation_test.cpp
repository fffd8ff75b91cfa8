// SPDX-License-Identifier: BSD-3-Clause
// A thread that is cancelled (pthread_cancel(3)) while it waits in the library finishes its call, and ends after it.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/cache_set.hpp>
#include <pinfold/dma_buf.hpp>
#include <pinfold/numa.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/release/registry.hpp>

#include <array>
#include <functional>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::cancellation_test {
namespace {

using namespace std::chrono_literals;

/// A registrar whose opens and closes wait, at a cancellation point, until the gate is open.
struct gated_registrar : fake_registrar {
  struct gate {
    std::atomic<int> waiting{0};
    std::atomic<bool> opens{true};
    std::atomic<bool> closes{true};

    void pass(const std::atomic<bool>& through) {
      ++waiting;
      while (!through) ::usleep(100);
    }
  };
  std::shared_ptr<gate> at = std::make_shared<gate>();

  gated_registrar(std::shared_ptr<fake_device> device, std::shared_ptr<gate> with)
      : fake_registrar(std::move(device)), at(std::move(with)) {}

  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    at->pass(at->opens);
    return fake_registrar::open(memory, access);
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    at->pass(at->closes);
    return fake_registrar::close(made);
  }
};

class cancellation : public ::testing::Test {
 protected:
  using cache_type = cache<gated_registrar>;

  [[nodiscard]] cache_type made(cache_options options = {}) {
    return cache_type(gated_registrar(device_, gate_), keeping(std::move(options)));
  }
  static void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

  /// Waits until this many calls of the driver have begun, in all.
  void wait_for_calls(int count) const {
    while (gate_->waiting < count) std::this_thread::sleep_for(1ms);
  }

  /// Runs `call` on a thread, cancels the thread when `is_inside` has returned, and then calls `let_go`. Returns
  /// whether the thread finished the call, and was cancelled after it.
  [[nodiscard]] bool finishes(std::function<void()> call, const std::function<void()>& is_inside,
                              const std::function<void()>& let_go) {
    struct run {
      std::function<void()> call;
      bool finished = false;
      static void* body(void* self) {
        static_cast<run*>(self)->call();
        static_cast<run*>(self)->finished = true;
        ::pthread_testcancel();
        return nullptr;
      }
    } one{std::move(call)};
    pthread_t thread{};
    EXPECT_EQ(::pthread_create(&thread, nullptr, run::body, &one), 0);
    is_inside();
    std::this_thread::sleep_for(20ms);  // most likely the thread waits by now; if not, the test shows less
    EXPECT_EQ(::pthread_cancel(thread), 0);
    let_go();
    void* answer = nullptr;
    EXPECT_EQ(::pthread_join(thread, &answer), 0);
    return one.finished && answer == PTHREAD_CANCELED;
  }
  [[nodiscard]] std::function<void()> open_gate() {
    return [this] { gate_->opens = gate_->closes = true; };
  }

  std::shared_ptr<fake_device> device_ = std::make_shared<fake_device>();
  std::shared_ptr<gated_registrar::gate> gate_ = std::make_shared<gated_registrar::gate>();
};

TEST_F(cancellation, waits_for_the_end_of_the_drivers_open) {
  auto cache = made();
  gate_->opens = false;
  EXPECT_TRUE(
      finishes([&] { EXPECT_TRUE(cache.acquire(at(0x10000), 0x1000)); }, [&] { wait_for_calls(1); }, open_gate()));
  EXPECT_EQ(cache.statistics().leases_now, 0U);
}

TEST_F(cancellation, waits_for_the_end_of_the_drivers_close) {
  auto cache = made({.retain = false});
  auto lease = cache.acquire(at(0x10000), 0x1000);
  ASSERT_TRUE(lease);
  gate_->closes = false;
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(lease->release()); }, [&] { wait_for_calls(2); }, open_gate()));
  EXPECT_EQ(device_->open_count(), 0U);
}

TEST_F(cancellation, waits_for_another_threads_open) {
  auto cache = made();
  gate_->opens = false;
  std::thread opener([&] { EXPECT_TRUE(cache.acquire(at(0x10000), 0x1000)); });
  wait_for_calls(1);
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(cache.acquire(at(0x10000), 0x1000)); }, [] {}, open_gate()));
  opener.join();
  EXPECT_EQ(cache.statistics().opens, 1U);
}

TEST_F(cancellation, waits_for_room) {
  auto cache = made({.max_count = 1, .full = when_full::wait, .full_timeout = 60s});
  auto lease = cache.acquire(at(0x10000), 0x1000);
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(cache.acquire(at(0x20000), 0x1000)); }, [] {},
                       [&] { EXPECT_TRUE(lease->release()); }));
}

// A thread that misses in the cache of a registrar without cancellation points has no guard until it leaves the plain
// path. The first miss makes its ledger.
TEST_F(cancellation, waits_for_room_for_a_registrar_without_cancellation_points) {
  cache full(null_registrar(), keeping({.max_count = 2, .full = when_full::wait, .full_timeout = 60s}));
  auto lease = full.acquire(at(0x10000), 0x1000);
  auto other = full.acquire(at(0x20000), 0x1000);
  const auto miss_twice = [&] {
    cache empty(null_registrar(), keeping({}));
    EXPECT_TRUE(empty.acquire(at(0x10000), 0x1000));
    EXPECT_TRUE(full.acquire(at(0x30000), 0x1000));
  };
  EXPECT_TRUE(finishes(miss_twice, [] {}, [&] { EXPECT_TRUE(lease->release()); }));
}

TEST_F(cancellation, a_sink_that_hears_of_an_eviction_does_not_end_the_process) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  int heard = 0;
  cache full(null_registrar(), keeping({.max_count = 1, .sink = [&](const event&) {
                                          ++heard;
                                          EXPECT_EQ(::write(ends[1], "x", 1), 1);
                                        }}));
  const auto evict = [&] {
    EXPECT_TRUE(full.acquire(at(0x10000), 0x1000));
    ::pthread_cancel(::pthread_self());
    EXPECT_TRUE(full.acquire(at(0x20000), 0x1000));
  };
  EXPECT_TRUE(finishes(evict, [] {}, [] {}));
  EXPECT_GT(heard, 0);
  for (const int end : ends) ::close(end);
}

TEST_F(cancellation, waits_for_the_threads_of_a_batch) {
  auto cache = made();
  gate_->opens = false;
  const std::array some{range{0x10000, 0x11000}, range{0x20000, 0x21000}};
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(cache.acquire_batch(some, local_access, {.workers = 2})); },
                       [&] { wait_for_calls(1); }, open_gate()));
}

TEST_F(cancellation, waits_for_the_next_chunk) {
  auto cache = made();
  gate_->opens = false;
  auto stream = cache.acquire_chunks(at(0x10000), 0x4000, local_access, {.chunk_bytes = 0x1000});
  ASSERT_TRUE(stream);
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(stream->next()); }, [&] { wait_for_calls(1); }, open_gate()));
}

TEST_F(cancellation, waits_for_the_pieces_of_a_large_lease) {
  auto cache = made();
  gate_->opens = false;
  EXPECT_TRUE(finishes(
      [&] {
        EXPECT_TRUE(cache.acquire_large(at(0x10000), 0x4000, local_access, {.piece_bytes = 0x1000, .workers = 2}));
      },
      [&] { wait_for_calls(2); }, open_gate()));
  EXPECT_EQ(cache.statistics().leases_now, 0U);
}

TEST_F(cancellation, waits_for_a_ticket) {
  const auto waits = std::to_array<std::function<void(background_registration<gated_registrar>&)>>({
      [](auto& ticket) { EXPECT_TRUE(ticket.wait()); },
      [](auto& ticket) { EXPECT_TRUE(ticket.wait_for(60s)); },
      [](auto& ticket) { EXPECT_TRUE(ticket.wait_until_ready(0x14000, 60s)); },
      [](auto& ticket) { EXPECT_TRUE(ticket.cancel(cancel_policy::give_back)); },
      [](auto& ticket) { const auto dying = std::move(ticket); },
  });
  for (const auto& wait : waits) {
    auto cache = made();
    gate_->opens = false;
    gate_->waiting = 0;
    auto ticket = cache.register_in_background(at(0x10000), 0x4000, local_access, {.piece_bytes = 0x1000});
    ASSERT_TRUE(ticket);
    wait_for_calls(1);  // before the call, which may cancel: then no thread would begin to register
    EXPECT_TRUE(finishes([&] { wait(*ticket); }, [] {}, open_gate()));
  }
}

TEST_F(cancellation, waits_for_the_members_of_a_set) {
  auto one = made();
  auto two = made();
  gate_->opens = false;
  const std::array members{&one, &two};
  cache_set<gated_registrar> set(members);
  EXPECT_TRUE(
      finishes([&] { EXPECT_TRUE(set.acquire(at(0x10000), 0x1000)); }, [&] { wait_for_calls(2); }, open_gate()));
}

TEST_F(cancellation, a_set_with_dma_bufs_and_distances_does_not_end_the_process) {
  auto one = made();
  auto two = made();
  const std::array members{&one, &two};
  cache_set<gated_registrar> set(members);
  shared_dma_buf from([](const range& wanted) -> result<std::optional<exported_dma_buf>> {
    return exported_dma_buf{::memfd_create("allocation", MFD_CLOEXEC), wanted, 0};
  });
  const set_options how{.policy = set_policy::near_first, .distance = distance_by_node({0, 0}), .dma_bufs = &from};
  EXPECT_TRUE(finishes(
      [&] {
        ::pthread_cancel(::pthread_self()), static_cast<void>(set.acquire(at(0x10000), 0x1000, local_access, how));
      },
      [] {}, [] {}));
}

TEST_F(cancellation, waits_for_the_importers_of_retired_memory) {
  release_registry registry(1);
  ASSERT_TRUE(registry.add(1) && registry.lend(1, 5) && registry.begin_retire(1, 60s));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(registry.wait(1, 60s).value().all_let_go()); }, [] {},
                       [&] { EXPECT_EQ(registry.died(5), 1U); }));
}

TEST_F(cancellation, waits_for_the_threads_of_a_restoration) {
  auto cache = made();
  EXPECT_TRUE(cache.acquire(at(0x10000), 0x1000));
  ASSERT_TRUE(cache.quiesce());
  gate_->opens = false;
  gate_->waiting = 0;
  auto running = cache.restore();
  ASSERT_TRUE(running);
  wait_for_calls(1);
  EXPECT_TRUE(finishes([&] { ::pthread_cancel(::pthread_self()), static_cast<void>(restoration(*std::move(running))); },
                       [] {}, open_gate()));
}

TEST_F(cancellation, waits_for_leases_when_a_cache_ends) {
  std::optional<cache_type> cache(made({.drain_timeout = 60s}));
  auto lease = cache->acquire(at(0x10000), 0x1000);
  EXPECT_TRUE(finishes([&] { cache.reset(); }, [] {}, [&] { EXPECT_TRUE(lease->release()); }));
  EXPECT_EQ(device_->open_count(), 0U);
}

TEST_F(cancellation, a_sink_that_writes_does_not_end_the_process) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  auto cache = made({.sink = [&](const event&) { EXPECT_EQ(::write(ends[1], "x", 1), 1); }});
  const auto lease = cache.acquire(at(0x10000), 0x1000);
  EXPECT_TRUE(finishes([&] { ::pthread_cancel(::pthread_self()), cache.invalidate(at(0x10000), 1); }, [] {}, [] {}));
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace pinfold::testing::cancellation_test
