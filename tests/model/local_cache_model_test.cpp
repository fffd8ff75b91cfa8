// SPDX-License-Identifier: BSD-3-Clause
// Random histories of a cache of local memory, step by step against the oracle: R20-R24, R27, R28, R41, R43, R49.
#include "model/local_oracle.hpp"
#include "support/local_fixture.hpp"
#include "support/settings.hpp"

#include <pinfold/monitors/explicit.hpp>

#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <thread>

namespace pinfold::testing {

enum class local_kind : std::uint8_t {
  acquire,
  persistent,
  bypass,
  batch,
  release,
  release_elsewhere,
  find,
  invalidate,
  announce,
  unpersist,
  fail_opens,
  fail_closes,
  refuse_unions,
  progress,
  flush,
};

struct local_step {
  local_kind what = local_kind::acquire;
  std::uint32_t a = 0;
  std::uint32_t b = 0;

  friend std::ostream& operator<<(std::ostream& out, const local_step& s) {
    static constexpr const char* names[] = {"acquire",       "persistent",        "bypass",     "batch",
                                            "release",       "release_elsewhere", "find",       "invalidate",
                                            "announce",      "unpersist",         "fail_opens", "fail_closes",
                                            "refuse_unions", "progress",          "flush"};
    return out << names[static_cast<int>(s.what)] << '(' << s.a << ',' << s.b << ')';
  }
};

struct local_setup {
  cache_options options;
  std::size_t capacity = SIZE_MAX;

  friend std::ostream& operator<<(std::ostream& out, const local_setup& s) {
    return out << to_line(s.options) << " capacity=" << s.capacity;
  }
  static std::string to_line(const cache_options& o) {
    return std::string(o.retain ? "retain" : "no-retain") + " max_bytes=" + std::to_string(o.max_bytes) +
           " max_count=" + std::to_string(o.max_count) + " full=" + std::to_string(static_cast<int>(o.full)) +
           " closes=" + std::to_string(static_cast<int>(o.closes));
  }
};

}  // namespace pinfold::testing

namespace rc {

template <>
struct Arbitrary<pinfold::testing::local_step> {
  static Gen<pinfold::testing::local_step> arbitrary() {
    using enum pinfold::testing::local_kind;
    using pinfold::testing::local_kind;
    using pinfold::testing::local_step;
    const auto kinds = gen::weightedElement<local_kind>({{30, acquire},
                                                         {2, persistent},
                                                         {3, bypass},
                                                         {4, batch},
                                                         {22, release},
                                                         {1, release_elsewhere},
                                                         {5, find},
                                                         {4, invalidate},
                                                         {3, announce},
                                                         {2, unpersist},
                                                         {3, fail_opens},
                                                         {3, fail_closes},
                                                         {1, refuse_unions},
                                                         {2, progress},
                                                         {2, flush}});
    const auto number = gen::inRange<std::uint32_t>(0, 1U << 16U);
    return gen::build<local_step>(gen::set(&local_step::what, kinds), gen::set(&local_step::a, number),
                                  gen::set(&local_step::b, number));
  }
};

template <>
struct Arbitrary<pinfold::testing::local_setup> {
  static Gen<pinfold::testing::local_setup> arbitrary() {
    return gen::exec([] {
      using namespace pinfold;
      pinfold::testing::local_setup made;
      made.options = pinfold::testing::keeping();
      made.options.retain = *gen::weightedElement<bool>({{3, true}, {1, false}});
      made.options.max_count = *gen::elementOf(std::vector<std::size_t>{0, 0, 2, 4});
      made.options.max_bytes = *gen::elementOf(std::vector<std::size_t>{0, 0, 100, 300});
      made.options.full = *gen::element(when_full::fail, when_full::bypass);
      made.options.closes = *gen::element(close_policy::inline_, close_policy::deferred);
      made.capacity = *gen::elementOf(std::vector<std::size_t>{SIZE_MAX, SIZE_MAX, 2, 4});
      return made;
    });
  }
};

}  // namespace rc

namespace pinfold::testing {
namespace {

std::uint64_t steps_done = 0;

class both {
 public:
  explicit both(const local_setup& as)
      : oracle_(as.options, as.capacity),
        real_(as.options),
        limited_(as.options.max_bytes != 0 || as.options.max_count != 0 || as.capacity != SIZE_MAX) {
    real_.device->capacity = as.capacity;
    inject();
  }

  void take(const local_step& s) {
    ++steps_done;
    const auto memory = some_range(s.a);
    const auto need = static_cast<rights>(1 + s.b % 31);
    switch (s.what) {
      case local_kind::acquire: return acquire(memory, need, {});
      case local_kind::persistent: return acquire(memory, need, {.persistent = true});
      case local_kind::bypass: return acquire(memory, need, {.bypass = true});
      case local_kind::batch: return batch(s.a, s.b, need);
      case local_kind::release: return release(s.a, false);
      case local_kind::release_elsewhere: return release(s.a, true);
      case local_kind::find: return find(memory, need);
      case local_kind::invalidate: oracle_.invalidate(memory); return real_.invalidate(memory.begin, memory.end);
      case local_kind::announce:
        oracle_.invalidate(memory);
        announce_gone(reinterpret_cast<const void*>(memory.begin), memory.size());
        RC_ASSERT(!real_.cached(1U << 20U, (1U << 20U) + 1));  // any request makes it look
        return;
      case local_kind::unpersist:
        oracle_.unpersist(memory);
        return real_.cache.unpersist(reinterpret_cast<const void*>(memory.begin), memory.size());
      case local_kind::fail_opens:
        oracle_.failing_opens = failing_opens_ = 1 + static_cast<int>(s.a % 3);
        oracle_.open_failure = open_failure_ = s.b % 2 == 0 ? errc::driver_error : errc::out_of_resources;
        return;
      case local_kind::fail_closes: return fail_closes(1 + static_cast<int>(s.a % 3));
      case local_kind::refuse_unions: oracle_.refuse_unions = refuse_unions_ = !refuse_unions_; return;
      case local_kind::progress: return same(oracle_.progress(), real_.cache.progress());
      case local_kind::flush: return same(oracle_.flush(), real_.cache.flush());
    }
  }

  void compare() {
    auto expected = oracle_.listed();
    decltype(expected) actual;
    for (const auto& e : real_.cache.dump())
      actual.emplace(e.covered.begin, e.covered.end, e.state, e.leases, e.bypass);
    RC_ASSERT(actual == expected);
    auto expected_access = oracle_.registered();
    decltype(expected_access) access;
    for (const auto& [key, one] : real_.device->now()) access.emplace(one.memory.begin, one.memory.end, one.access);
    RC_ASSERT(access == expected_access);
    const auto now = real_.cache.statistics();
    RC_ASSERT(now.acquires == now.hits + now.misses + now.failed_acquires);
    RC_ASSERT(now.leases_now == leases_.size());
    for (const auto& [of, held] : leases_) RC_ASSERT(held.stale() == of->stale);
  }

  void finish() {
    failing_opens_ = oracle_.failing_opens = 0;
    fail_closes(0);
    while (!leases_.empty()) release(0, false);
    oracle_.unpersist({0, UINTPTR_MAX});
    real_.cache.unpersist(nullptr, UINTPTR_MAX);
    RC_ASSERT(bool(real_.cache.flush()));
    RC_ASSERT(real_.device->open_now() == 0U);
    RC_ASSERT(real_.cache.statistics().bytes_now == 0U);
    RC_ASSERT(real_.cache.statistics().bypass_bytes == 0U);
  }

 private:
  using cache_type = pinfold::cache<pretend_group_registrar>;
  using held_lease = cache_type::lease;

  static range some_range(std::uint32_t number) {
    const std::uintptr_t begin = 16 + number % 96;
    const std::uintptr_t lengths[] = {1, 8, 32, 64};
    return {begin, begin + lengths[number / 96 % 4]};
  }

  void acquire(const range& memory, rights need, const acquire_options& how) {
    auto got = real_.acquire(memory.begin, memory.end, need, how);
    local_oracle::item* item = nullptr;
    const auto expected = oracle_.acquire(memory, need, how.persistent, how.bypass, item, taken(got));
    RC_LOG() << "acquire: expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : name_of(got.error().code)) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
    if (got) leases_.emplace_back(item, std::move(*got));
  }

  /// Which registration a lease is on.
  template <class Lease>
  std::optional<local_oracle::choice> taken(const Lease& got) const {
    if (!got) return std::nullopt;
    const auto one = real_.device->now().at(got->handle().key);
    return local_oracle::choice{one.memory, one.access};
  }

  // A batch does what single requests do, though it may close what is due later and in another order: it is tried where
  // nothing runs short, and compared when all that is due is closed.
  void batch(std::uint32_t a, std::uint32_t b, rights need) {
    if (limited_ || failing_opens_ > 0 || oracle_.failing_closes > 0 || refuse_unions_) return;
    std::vector<range> ranges;
    for (std::uint32_t i = 0; i <= a % 5; ++i) ranges.push_back({1000 + 100 * i, 1016 + 100 * i + b % 16});
    auto got = real_.cache.acquire_batch(ranges, need, {.workers = 1});
    std::vector<local_oracle::item*> items(ranges.size());
    local_oracle::outcome expected;
    for (std::size_t i = 0; i < ranges.size() && !expected; ++i) {
      expected = oracle_.acquire(ranges[i], need, false, false, items[i], got ? taken(&(*got)[i]) : std::nullopt);
      if (expected) items[i] = nullptr;
    }
    RC_ASSERT(expected.has_value() == !got.has_value());
    got = {};
    for (auto* item : items)
      if (item != nullptr) oracle_.release(*item);
    same(oracle_.progress(), real_.cache.progress());
  }

  void find(const range& memory, rights need) {
    auto got = real_.cache.find(reinterpret_cast<const void*>(memory.begin), memory.size(), need);
    auto* item = oracle_.find(memory, need, taken(got));
    RC_ASSERT(got.has_value() == (item != nullptr));
    if (got) leases_.emplace_back(item, std::move(*got));
  }

  void release(std::uint32_t number, bool elsewhere) {
    if (leases_.empty()) return;
    const auto at = leases_.begin() + number % static_cast<std::uint32_t>(leases_.size());
    auto [of, held] = std::move(*at);
    leases_.erase(at);
    result<void> got;
    if (elsewhere) {
      std::thread([&got, taken = std::move(held)]() mutable { got = taken.release(); }).join();
    } else {
      got = held.release();
    }
    same(oracle_.release(*of), got);
  }

  void inject() {
    real_.device->fail_opens([this](const range&, rights access) -> std::optional<error> {
      if (failing_opens_ > 0) {
        --failing_opens_;
        return error{open_failure_, native_kind::posix, 5, "injected"};
      }
      if (refuse_unions_ && __builtin_popcount(static_cast<unsigned>(access)) > 3)
        return error{errc::driver_error, native_kind::posix, 22, "too many rights"};
      return std::nullopt;
    });
  }
  void fail_closes(int count) {
    oracle_.failing_closes = count;
    real_.device->fail_closes(count);
  }
  static void same(bool expected, const result<void>& got) { RC_ASSERT(got.has_value() == expected); }

  local_oracle oracle_;
  local_fixture<pretend_group_registrar> real_;
  bool limited_;
  std::vector<std::pair<local_oracle::item*, held_lease>> leases_;
  int failing_opens_ = 0;
  errc open_failure_ = errc::driver_error;
  bool refuse_unions_ = false;
};

TEST(local_cache_model, agrees_with_the_oracle_after_every_step) {
  constexpr std::uint64_t longest = 200;  // steps of a history, a quarter of it on average
  const auto histories = 1 + model_steps() * 11 / 10 / (longest / 4);
  const auto parameters = "seed=" + std::to_string(test_seed()) + " max_success=" + std::to_string(histories) +
                          " max_size=" + std::to_string(longest);
  if (std::getenv("RC_PARAMS") == nullptr) ::setenv("RC_PARAMS", parameters.c_str(), 1);
  EXPECT_TRUE(rc::check([](const local_setup& as, const std::vector<local_step>& history) {
    both run(as);
    for (const auto& one : history) {
      run.take(one);
      run.compare();
    }
    run.finish();
  })) << "replay with PINFOLD_TEST_SEED="
      << test_seed() << ", or this history with the RC_PARAMS above";
  std::printf("%llu steps\n", static_cast<unsigned long long>(steps_done));
}

}  // namespace
}  // namespace pinfold::testing
