// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Every driver call of a long scenario of a cache of local memory fails, in every way, once and for good: the error
/// reaches the caller with the driver's code, nothing leaks or is closed twice, the counters add up, and the next call
/// works (R7, R10, R41, R43). The test chooses the driver:
///
///     struct driver {
///       static constexpr native_kind kind;        // of the codes
///       my_registrar registrar();
///       fault_points faults;
///       std::size_t open_count();                   // regions
///       std::size_t misuses();                    // closes of regions that are not open
///       static bool hidden(call, code);           // a failure that the cache does not report
///     };
#pragma once

#include "support/cache_checks.hpp"
#include "support/fault_points.hpp"
#include "support/test_pages.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// One injected failure.
struct local_fault {
  const char* call;
  int code;
  std::uint64_t nth;  ///< counted from 1
  bool for_good;
};

/// What the cache told the caller and the event sink.
struct told {
  std::vector<error> errors;
  std::vector<error> failed_closes;

  template <class T>
  void note(const result<T>& got) {
    if (!got) errors.push_back(got.error());
  }
};

template <class Driver>
class local_faults {
 public:
  using registrar_type = decltype(std::declval<Driver&>().registrar());
  using cache_type = pinfold::cache<registrar_type>;

  local_faults(Driver& driver, close_policy closes) : driver_(driver), closes_(closes) {}

  /// Runs the scenario with the fault; returns whether the fault struck.
  bool survives(const local_fault& fault) {
    SCOPED_TRACE(::testing::Message() << fault.call << " fails, the " << fault.nth << "th time"
                                      << (fault.for_good ? " and then always" : "") << ", with " << fault.code);
    told said;
    std::uint64_t struck = 0;
    {
      cache_type cache(driver_.registrar(), options(said));
      driver_.faults.fail(fault.call, fault.nth, fault.code, fault.for_good);
      scenario(cache, said);
      struck = driver_.faults.struck();
      expect_told(fault, struck, cache.statistics(), said);
      driver_.faults.heal();
      expect_works(cache);
    }
    expect_nothing_left();
    ++runs;
    injected += struck;
    return struck > 0;
  }

  /// Runs a cache whose fault begins before its end and lasts until it is gone; returns whether the fault struck.
  bool survives_its_end(const local_fault& fault) {
    SCOPED_TRACE(::testing::Message() << "at the end " << fault.call << " fails with " << fault.code);
    told said;
    {
      cache_type cache(driver_.registrar(), options(said));
      for (std::size_t page = 0; page < 6; page += 2) said.note(cache.acquire(memory_.at(page), test_pages::page));
      driver_.faults.fail(fault.call, fault.nth, fault.code);
    }
    const bool reached = driver_.faults.struck() > 0;
    driver_.faults.heal();
    expect_nothing_left();
    ++runs;
    injected += reached ? 1 : 0;
    return reached;
  }

  std::uint64_t runs = 0, injected = 0;
  std::uint64_t made_good = 0;  ///< failures that the cache made good: the caller got all it asked for

 private:
  cache_options options(told& said) const {
    cache_options made;
    made.max_count = 6;
    made.closes = closes_;
    made.monitor = monitor_choice::manual;
    made.sink = [&said](const event& what) {
      if (what.kind == event_kind::close_failed) said.failed_closes.push_back(*what.cause);
    };
    return made;
  }

  auto acquire(cache_type& cache, told& said, std::size_t page, std::size_t count, access_flags need = local_access,
               acquire_options how = {}) {
    auto got = cache.acquire(memory_.at(page), count * test_pages::page, need, how);
    said.note(got);
    return got;
  }
  static void release(result<typename cache_type::lease>& held, told& said) {
    if (held) said.note(held->release());
  }

  /// Performs hits, misses, evictions, overlaps, more rights, both kinds of batches, replaced memory and a flush.
  void scenario(cache_type& cache, told& said) {
    for (int round = 0; round < 2; ++round)
      for (std::size_t page = 0; page < 10; page += 2) static_cast<void>(acquire(cache, said, page, 1));
    static_cast<void>(acquire(cache, said, 0, 5));
    static_cast<void>(acquire(cache, said, 8, 4, access_flags::remote_write));
    auto shared = acquire(cache, said, 12, 2);
    auto kept = acquire(cache, said, 20, 1, local_access, {.persistent = true});
    auto alone = acquire(cache, said, 12, 1, local_access, {.bypass = true});
    const std::vector pieces{memory_.pages(24, 1), memory_.pages(26, 1), memory_.pages(12, 1)};
    if (auto all = cache.acquire_batch(pieces, local_access, {.workers = 1}); !all) said.note(all);
    cache.invalidate(memory_.at(12), 2 * test_pages::page);
    static_cast<void>(acquire(cache, said, 12, 2));
    release(alone, said);
    release(shared, said);
    release(kept, said);
    said.note(cache.progress());
    cache.unpersist(memory_.at(20), test_pages::page);
    cache.invalidate(memory_.at(0), 5 * test_pages::page);
    static_cast<void>(acquire(cache, said, 1, 1));
    said.note(cache.flush());
  }

  void expect_told(const local_fault& fault, std::uint64_t struck, const statistics& now, const told& said) {
    expect_counters_add_up(now);
    for (const auto* list : {&said.errors, &said.failed_closes})
      for (const auto& one : *list) {
        if (one == errc::over_budget && !said.failed_closes.empty()) continue;  // quarantined entries take room
        EXPECT_EQ(one.native, fault.code) << describe(one);
        EXPECT_EQ(one.kind, Driver::kind) << describe(one);
      }
    EXPECT_EQ(now.failed_closes, said.failed_closes.size()) << "each is told";
    if (struck == 0 || Driver::hidden(fault.call, fault.code)) return;
    EXPECT_EQ(now.failed_opens + now.failed_closes, struck) << describe(now);
    EXPECT_GE(said.errors.size(), now.failed_acquires);
    const bool no_room = fault.code == ENOMEM || fault.code == ENOSPC || fault.code == EAGAIN;
    if (now.failed_opens > 0 && !no_room && said.errors.empty()) ++made_good;
  }

  void expect_works(cache_type& cache) {
    told after;
    auto held = acquire(cache, after, 30, 1);
    EXPECT_TRUE(held && held->release());
    EXPECT_TRUE(cache.flush());
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open, 0U);
    EXPECT_EQ(now.quarantined, 0U);
    EXPECT_EQ(now.leases_now, 0U);
    expect_nothing_left();
  }
  void expect_nothing_left() {
    EXPECT_EQ(driver_.open_count(), 0U);
    EXPECT_EQ(driver_.misuses(), 0U);
  }

  Driver& driver_;
  close_policy closes_;
  test_pages memory_{32};
};

/// Fails each call with each code: the first such call of the scenario, the second, and so on.
template <class Driver>
void expect_survival(Driver& driver, const std::vector<const char*>& calls, const std::vector<int>& codes) {
  std::uint64_t runs = 0, injected = 0;
  for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
    local_faults<Driver> faults(driver, closes);
    for (const char* const call : calls)
      for (const int code : codes)
        for (const bool for_good : {false, true}) {
          std::uint64_t nth = 1;
          faults.made_good = 0;
          while (faults.survives({call, code, nth, for_good}) && !::testing::Test::HasFailure()) ++nth;
          if (::testing::Test::HasFailure()) return;
          EXPECT_GT(nth, 1U) << "the scenario never calls " << call;
          EXPECT_LE(faults.made_good, 1U) << "only requests smaller than their surroundings: " << call << ' ' << code;
        }
    for (const char* const call : calls)
      for (const int code : codes)
        for (std::uint64_t nth = 1; faults.survives_its_end({call, code, nth, false});) {
          if (::testing::Test::HasFailure()) return;
          ++nth;
        }
    runs += faults.runs;
    injected += faults.injected;
  }
  std::printf("%llu faults in %llu runs\n", static_cast<unsigned long long>(injected),
              static_cast<unsigned long long>(runs));
}

}  // namespace pinfold::testing
