// SPDX-License-Identifier: BSD-3-Clause
// Random histories of one cache, compared step by step with the oracle: R3-R7, R9-R17, R40-R43, R47, R48.
#include "model/history.hpp"
#include "model/oracle.hpp"
#include "support/fixtures/cache_checks.hpp"

#include <thread>

namespace pinfold::testing {
namespace {

std::uint64_t steps_done = 0;

/// The real cache and the oracle, driven together.
class both {
 public:
  explicit both(const setup& as) : oracle_(as.options, as.capacity), real_(as.options) {
    real_.world->capacity = as.capacity;
    for (std::uint32_t i = 0; i < 6; ++i) allocate(i, i * 5);
  }

  void take(const step& s) {
    ++steps_done;
    switch (s.what) {
      case kind::acquire: return acquire(handle(s.a), part(handle(s.a), s.b));
      case kind::release: return release(s.a, false);
      case kind::release_elsewhere: return release(s.a, true);
      case kind::find: return find(handle(s.a), part(handle(s.a), s.b));
      case kind::allocate: return allocate(s.a, s.b);
      case kind::invalidate: return invalidate(s.a % 2, {64 * (s.b % 16), 64 * (s.b % 16) + 1 + s.a % 256});
      case kind::kill: return kill(s.a % 2);
      case kind::drop: return same(oracle_.drop(s.a % 2), real_.cache.drop_peer({s.a % 2}));
      case kind::fail_opens:
        oracle_.failing_opens = failing_opens_ = 1 + static_cast<int>(s.a % 3);
        oracle_.open_failure = open_failure_ = s.b % 2 == 0 ? errc::driver_error : errc::out_of_resources;
        return inject();
      case kind::fail_closes: oracle_.failing_closes = failing_closes_ = 1 + static_cast<int>(s.a % 3); return inject();
      case kind::progress: return same(oracle_.progress(), real_.cache.progress());
      case kind::flush: return same(oracle_.flush(), real_.cache.flush());
      case kind::count_: return;
    }
  }

  void compare() {
    auto expected = oracle_.listed();
    decltype(expected) actual;
    for (const auto& e : real_.cache.dump())
      actual.emplace(e.peer.value, e.covered.begin, e.covered.end, e.state, e.leases, e.bypass);
    RC_ASSERT(actual == expected);
    const auto now = real_.cache.statistics();
    RC_ASSERT(now.open == real_.world->open_count());
    RC_ASSERT(now.acquires == now.hits + now.misses + now.failed_acquires);
    RC_ASSERT(now.leases_now == leases_.size());
    RC_ASSERT(real_.world->misuses == 0U);
    for (const auto& [of, held] : leases_) RC_ASSERT(serial_at(held.data()) == of.serial);
  }

  void finish() {
    real_.world->heal();
    oracle_.failing_closes = failing_closes_ = 0;
    while (!leases_.empty()) release(0, false);
    RC_ASSERT(bool(real_.cache.flush()));
    RC_ASSERT(real_.world->open_count() == 0U);
    RC_ASSERT(real_.cache.statistics().bytes_now == 0U);
    RC_ASSERT(real_.cache.statistics().bypass_bytes == 0U);
  }

 private:
  using lease = import_cache<fake_importer>::lease;

  // Recent handles are requested most often; old and dead ones still sometimes.
  const fake_handle& handle(std::uint32_t number) const {
    const auto recent = std::min<std::size_t>(handles_.size(), number % 8 == 0 ? handles_.size() : 8);
    return handles_[handles_.size() - 1 - number / 8 % recent];
  }
  static range part(const fake_handle& of, std::uint32_t number) {
    const auto begin = of.base + 8 * (number % (of.size / 8));
    return number % 3 == 0 ? of.allocation() : range{begin, begin + 8};
  }

  void acquire(const fake_handle& wanted, const range& where) {
    const auto expected = oracle_.acquire(wanted, where);
    auto got = real_.cache.acquire({wanted.exporter}, wanted, where.begin, where.size());
    RC_LOG() << "acquire: expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : name_of(got.error().code)) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
    if (got) leases_.emplace_back(wanted, std::move(*got));
  }
  void find(const fake_handle& wanted, const range& where) {
    const bool expected = oracle_.find(wanted, where);
    auto got = real_.cache.find({wanted.exporter}, wanted, where.begin, where.size());
    RC_ASSERT(got.has_value() == expected);
    if (got) leases_.emplace_back(wanted, std::move(*got));
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
    same(oracle_.release(of), got);
  }
  void allocate(std::uint32_t where, std::uint32_t size) {
    const auto made = real_.world->allocate(where % 2, 64 * (1 + where / 2 % 12), 64 * (1 + size % 4));
    oracle_.exported.remove_if(
        [&](auto& old) { return old.exporter == made.exporter && old.allocation().overlaps(made.allocation()); });
    oracle_.exported.push_back(made);
    handles_.push_back(made);
  }
  void invalidate(std::uint64_t peer, const range& gone) {
    oracle_.invalidate(peer, gone);
    real_.cache.invalidate({peer}, gone);
  }
  void kill(std::uint64_t peer) {
    oracle_.exported.remove_if([&](auto& old) { return old.exporter == peer; });
    real_.world->kill(peer);
  }
  void inject() {
    real_.world->inject([this](driver_call call, const fake_handle&) -> std::optional<error> {
      int& left = call == driver_call::open ? failing_opens_ : failing_closes_;
      if (left == 0) return std::nullopt;
      --left;
      return error{call == driver_call::open ? open_failure_ : errc::driver_error, native_kind::posix, 5, "injected"};
    });
  }
  static void same(bool expected, const result<void>& got) { RC_ASSERT(got.has_value() == expected); }

  oracle oracle_;
  fake_fixture<> real_;
  std::vector<fake_handle> handles_;
  std::vector<std::pair<fake_handle, lease>> leases_;
  int failing_opens_ = 0;
  int failing_closes_ = 0;
  errc open_failure_ = errc::driver_error;
};

TEST(import_cache_model, agrees_with_the_oracle_after_every_step) {
  expect_agreement(model_steps(), [](const setup& as, const std::vector<step>& history) {
    both run(as);
    for (const auto& one : history) {
      run.take(one);
      run.compare();
    }
    run.finish();
  });
  std::printf("%llu steps\n", static_cast<unsigned long long>(steps_done));
}

}  // namespace
}  // namespace pinfold::testing
