// SPDX-License-Identifier: BSD-3-Clause
// The end of a cache while threads of other caches, or releases of its own leases, are between two steps (R42, R57):
// nothing stays open, the driver is not called afterwards, and no thread waits without end.
#include "support/fixtures/stopped_hit.hpp"

#include "core/deadlines.hpp"
#include "core/sync_point.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/detail/ledger.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace pinfold::testing::cache_end_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t first = 0x10000;
constexpr std::uintptr_t last = 0x11000;

/// A registrar that counts closes, and records which thread made the last one.
class noting_registrar : public fake_registrar {
 public:
  using fake_registrar::fake_registrar;
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    ++closes;
    closer = std::this_thread::get_id();
    return fake_registrar::close(made);
  }
  inline static std::atomic<int> closes{0};
  inline static std::atomic<std::thread::id> closer{};
};

/// Three caches, and a thread that hit in the first one. The second cache reuses the memory of the first one's records,
/// and the third its number, so the thread's hint for the third leads to a record of the second.
struct caches_with_a_hint {
  using fixture = local_fixture<noting_registrar>;
  std::optional<fixture> old, other, mine;
  std::atomic<std::thread::id> hitting{};

  void make(const cache_options& options) {
    hitting = std::this_thread::get_id();
    old.emplace();
    other.emplace(options);
    old->touch(first, last);
    old->touch(first, last);
    old.reset();
    std::thread([this] { other->touch(first, last); }).join();
    mine.emplace();
  }
  [[nodiscard]] std::function<void()> making(cache_options options) {
    return [this, options = std::move(options)] { make(options); };
  }
  [[nodiscard]] std::function<void()> hit() {
    return [this] { static_cast<void>(mine->acquire(first, last)); };
  }
  [[nodiscard]] bool pinned() { return other->cache.statistics().leases_now == 1; }
};

class cache_end : public ::testing::Test {
 protected:
  void SetUp() override {
    if (detail::ledger::of_this_thread() == nullptr) GTEST_SKIP() << "hints need membarrier";
    core::longest_transient_pin = 60s;
    noting_registrar::closes = 0;
  }
  void TearDown() override {
    core::longest_transient_pin = 5ms;
    core::at_point = nullptr;
  }
  /// Calls `what` at the `number`th point (from 1) that the calling thread reaches on the closing side.
  static void at_point(int number, std::function<void()> what) {
    to_come_ = number;
    at_point_ = std::move(what);
    core::at_point = +[]() noexcept {
      if (--to_come_ == 0) std::exchange(at_point_, nullptr)();
    };
  }
  /// Returns options whose sink records the events in `told_`.
  cache_options listening(cache_options options = {}) {
    options.sink = [this](const event& what) {
      std::lock_guard guard(mutex_);
      told_.push_back(what.kind);
    };
    return options;
  }
  long told(event_kind kind) {
    std::lock_guard guard(mutex_);
    return std::count(told_.begin(), told_.end(), kind);
  }

 private:
  inline static thread_local std::function<void()> at_point_;
  inline static thread_local int to_come_ = 0;
  std::mutex mutex_;
  std::vector<event_kind> told_;
};

TEST_F(cache_end, R42_another_caches_transient_pin_is_no_lease) {
  caches_with_a_hint all;
  stopped_hit other("after_pin", all.making(listening({.drain_timeout = 0ms})), all.hit());
  ASSERT_TRUE(all.pinned());
  const auto device = all.other->device;
  at_point(1, [&] { other.go(); });  // the end has begun to wait
  all.other.reset();
  EXPECT_EQ(device->open_count(), 0U);
  EXPECT_EQ(told(event_kind::leases_outlive_cache), 0);
}

TEST_F(cache_end, R42_another_caches_transient_pin_keeps_no_entry_open) {
  caches_with_a_hint all;
  stopped_hit other("before_pin", all.making(listening()), all.hit());
  const auto device = all.other->device;
  at_point(2, [&] { other.go_to("after_pin"); });  // the end found no lease
  all.other.reset();
  const int closes = noting_registrar::closes;
  EXPECT_EQ(device->open_count(), 0U);
  EXPECT_EQ(told(event_kind::leases_outlive_cache), 0);
  other.go();
  std::this_thread::yield();
  EXPECT_EQ(noting_registrar::closes, closes);
}

TEST_F(cache_end, R57_a_failed_hit_closes_nothing_of_another_cache) {
  caches_with_a_hint all;
  {
    stopped_hit other("before_pin", all.making({}), all.hit());
    noting_registrar::closes = 0;  // forgets the closes of the first cache
    auto lease = all.other->acquire(first, last);
    ASSERT_TRUE(lease);
    other.go_to("after_pin");
    all.other->invalidate(first, last);
    EXPECT_TRUE(lease->release());
    EXPECT_EQ(all.other->device->open_count(), 1U) << "pinned, so that this release could not close it";
  }
  if (noting_registrar::closes > 0) {
    EXPECT_NE(noting_registrar::closer.load(), all.hitting.load());
  }
  EXPECT_TRUE(all.other->cache.progress());
  EXPECT_EQ(all.other->device->open_count(), 0U);
  EXPECT_EQ(noting_registrar::closer.load(), std::this_thread::get_id());
}

/// A registrar whose closes block until `leave`, and whose `alive` tells whether it exists.
class blocking_registrar : public fake_registrar {
 public:
  explicit blocking_registrar(std::shared_ptr<fake_device> device) : fake_registrar(std::move(device)) {
    alive = token_;
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    entered = true;
    while (!leave) std::this_thread::yield();
    return fake_registrar::close(made);
  }
  inline static std::atomic<bool> entered{false};
  inline static std::atomic<bool> leave{false};
  inline static std::weak_ptr<int> alive;

 private:
  std::shared_ptr<int> token_ = std::make_shared<int>(0);
};

class close_in_flight : public cache_end {
 protected:
  using fixture = local_fixture<blocking_registrar>;
  void SetUp() override {
    cache_end::SetUp();
    core::longest_transient_pin = 5ms;
    blocking_registrar::entered = blocking_registrar::leave = false;
  }
  static void wait_until_entered() {
    while (!blocking_registrar::entered) std::this_thread::yield();
  }
  /// Ends the cache while a close of its registrar does not return.
  void end(std::optional<fixture>& f) {
    wait_until_entered();
    f.reset();
    EXPECT_EQ(told(event_kind::closes_outlive_cache), 1);
    EXPECT_FALSE(blocking_registrar::alive.expired()) << "a thread is in it";
    blocking_registrar::leave = true;
  }
  static void expect_gone() {
    for (int i = 0; i < 60'000 && !blocking_registrar::alive.expired(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(blocking_registrar::alive.expired());
  }
};

TEST_F(close_in_flight, R42_close_by_a_release_is_waited_for_until_the_drain_timeout) {
  std::optional<fixture> f;
  f.emplace(listening({.retain = false, .drain_timeout = 20ms}));
  const auto device = f->device;
  auto lease = f->acquire(first, last);
  ASSERT_TRUE(lease);
  std::thread releasing([&] { EXPECT_TRUE(lease->release()); });
  end(f);
  releasing.join();
  EXPECT_EQ(device->open_count(), 0U);
  expect_gone();
}

TEST_F(close_in_flight, R42_close_by_the_reaper_is_waited_for_until_the_drain_timeout) {
  std::optional<fixture> f;
  f.emplace(listening({.closes = close_policy::deferred, .reaper = true, .drain_timeout = 20ms}));
  const auto device = f->device;
  f->touch(first, last);
  f->invalidate(first, last);
  end(f);
  expect_gone();
  EXPECT_EQ(device->open_count(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::cache_end_test
