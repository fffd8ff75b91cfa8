// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// pinfold for measurements: over registrars that do nothing, or sleep, so that the rest is the cache's own cost.
#pragma once

#include "cli/settings.hpp"
#include "perf/slow_registrar.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/options.hpp>
#include <pinfold/registrars/null.hpp>

#include "bench/subject.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tool {

/// Returns options that keep registrations. With `manual` the application announces when memory goes, and here none
/// does.
[[nodiscard]] inline pinfold::cache_options options_for(const bench::setup& how) {
  pinfold::cache_options options;
  options.monitor = monitors_named(how.monitors);
  options.max_count = how.most;
  options.full = pinfold::when_full::wait;
  return options;
}

/// One thread's use of a cache through the C++ API, in place as in a caller's own loop.
template <class Cache>
class cache_user {
 public:
  using held = pinfold::result<typename Cache::lease>;

  explicit cache_user(Cache& cache) noexcept : cache_(&cache) {}

  [[nodiscard, gnu::always_inline]] held get(const bench::request& wanted) noexcept {
    return cache_->acquire(reinterpret_cast<void*>(wanted.address), wanted.bytes);
  }
  [[nodiscard]] std::uint64_t key(const held& lease) const noexcept { return lease ? lease->registration().key : 0; }
  [[gnu::always_inline]] void put(held& lease) noexcept {
    if (lease) static_cast<void>(lease->release());
  }

  /// Makes the last release close the registration.
  void forget(const held& lease) noexcept {
    if (lease) cache_->invalidate(reinterpret_cast<void*>(key(lease)), 1);
  }

 private:
  Cache* cache_;
};

/// Uses the C++ API, whose typed part is compiled into the caller. Throws `bench::cannot_be_measured` where the
/// monitors do not prove themselves.
class inline_subject {
 public:
  static constexpr const char* name = "pinfold";
  using cache = pinfold::cache<pinfold::null_registrar>;

  inline_subject(const bench::region_set& /*regions*/, const bench::setup& how) : inline_subject(options_for(how)) {}

  [[nodiscard]] cache_user<cache> user() noexcept { return cache_user<cache>(cache_); }
  [[nodiscard]] std::uint64_t registrations() const noexcept { return cache_.statistics().opens; }
  [[nodiscard]] std::uint64_t deregistrations() const noexcept { return cache_.statistics().closes; }

  /// All ranges by one call.
  class batch {
   public:
    static constexpr const char* name = "batch";

    batch(inline_subject& of, const bench::requests& wanted, unsigned workers) : cache_(&of.cache_), workers_(workers) {
      for (const auto& one : wanted) ranges_.push_back({one.address, one.address + one.bytes});
    }
    void get(const bench::deadline& /*end*/) {
      held_ = cache_->acquire_batch(ranges_, pinfold::local_access, {.workers = workers_});
    }
    [[nodiscard]] std::uint64_t errors() const { return held_ && held_->registrations() == ranges_.size() ? 0 : 1; }
    void put() { held_ = pinfold::batch_lease<pinfold::null_registrar>(); }

   private:
    cache* cache_;
    unsigned workers_;
    std::vector<pinfold::range> ranges_;
    pinfold::result<pinfold::batch_lease<pinfold::null_registrar>> held_;
  };

 protected:
  explicit inline_subject(const pinfold::cache_options& options) : cache_(pinfold::null_registrar(), options) {
    if (cache_.monitors().starts_with("none")) throw bench::cannot_be_measured(std::string(cache_.monitors()));
  }

  cache cache_;
};

/// The same subject with slow calls.
class pausing_subject {
 public:
  static constexpr const char* name = "pinfold";
  using cache = pinfold::cache<slow_registrar>;

  pausing_subject(const bench::region_set& /*regions*/, const bench::setup& how)
      : cache_(slow_registrar(how.register_delay, how.deregister_delay), options_for(how)) {}

  [[nodiscard]] cache_user<cache> user() noexcept { return cache_user<cache>(cache_); }

 private:
  cache cache_;
};

/// Three caches that live at the same time, used in turn, so that state kept for the cache used last does not help.
class three_caches_subject {
 public:
  static constexpr const char* name = "pinfold-3caches";

  three_caches_subject(const bench::region_set& regions, const bench::setup& how)
      : first_(regions, how), second_(regions, how), third_(regions, how) {}

  class three_users {
   public:
    using one_user = decltype(std::declval<inline_subject&>().user());
    using held = one_user::held;

    three_users(one_user first, one_user second, one_user third) noexcept : users_{first, second, third} {}

    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      turn_ = turn_ == 2 ? 0 : turn_ + 1;
      return users_[turn_].get(wanted);
    }
    [[nodiscard]] std::uint64_t key(const held& lease) const noexcept { return users_[turn_].key(lease); }
    void put(held& lease) noexcept { users_[turn_].put(lease); }

   private:
    one_user users_[3];
    unsigned turn_ = 0;
  };

  [[nodiscard]] three_users user() noexcept { return {first_.user(), second_.user(), third_.user()}; }

  /// Calls the function for each cache, to fill it: each has all regions.
  template <class F>
  void each_cache(F&& each) {
    each(first_);
    each(second_);
    each(third_);
  }

 private:
  inline_subject first_;
  inline_subject second_;
  inline_subject third_;
};

}  // namespace tool
