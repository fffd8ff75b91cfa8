// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache with the members of `pinfold::cache` that goes through the C interface, over a registrar of C functions: the
/// model and fault tests run over both. An argument of every request must arrive at the registrar.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/events.hpp>
#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfold::testing {

inline error from_c(const pinfold_error& failure) {
  return {static_cast<errc>(-1 - failure.code), static_cast<native_kind>(failure.native_kind), failure.native,
          failure.message};
}
/// Returns a call's result; the error is the thread's last one.
inline result<void> from_c(int code) {
  if (code == PINFOLD_OK) return {};
  EXPECT_EQ(code, pinfold_last_error()->code);
  return tl::unexpected(from_c(*pinfold_last_error()));
}

/// Returns the options, with the sink behind a C function.
inline pinfold_options in_c(const cache_options& from) {
  const auto flag = [](bool set, std::uint32_t bit) { return set ? bit : 0; };
  pinfold_options to;
  EXPECT_EQ(pinfold_options_init(&to, sizeof to), PINFOLD_OK);
  to.flags = flag(!from.retain, PINFOLD_NO_RETAIN) |
             flag(from.closes == close_policy::deferred, PINFOLD_DEFERRED_CLOSES) |
             flag(from.entry_statistics, PINFOLD_ENTRY_STATISTICS);
  to.monitor = static_cast<std::uint32_t>(from.monitor);
  to.full = static_cast<std::uint32_t>(from.full);
  to.max_bytes = from.max_bytes;
  to.max_count = from.max_count;
  to.full_timeout_ms = static_cast<std::uint64_t>(from.full_timeout.count());
  to.conflict_timeout_ms = static_cast<std::uint64_t>(from.conflict_timeout.count());
  if (from.sink)
    to.sink = [](void* self, const pinfold_event* what) {
      const error cause = what->cause == nullptr ? error{} : from_c(*what->cause);
      (*static_cast<const event_sink*>(self))({.kind = static_cast<event_kind>(what->kind),
                                               .level = static_cast<severity>(what->level),
                                               .cause = what->cause == nullptr ? nullptr : &cause});
    };
  return to;
}

inline statistics from_c(const pinfold_statistics& now) {
  statistics to;
  static_assert(sizeof to == sizeof now - sizeof now.size, "the same counters in the same order, but for times");
  to.hits = now.hits;
  to.valid = now.valid;
  to.misses = now.misses;
  to.acquires = now.acquires;
  to.failed_acquires = now.failed_acquires;
  to.opens = now.opens;
  to.closes = now.closes;
  to.failed_opens = now.failed_opens;
  to.failed_closes = now.failed_closes;
  to.open = now.open;
  to.bytes_now = now.bytes_now;
  to.peak_bytes = now.peak_bytes;
  to.leases_now = now.leases_now;
  to.peak_leases = now.peak_leases;
  to.quarantined = now.quarantined;
  to.bypass_bytes = now.bypass_bytes;
  return to;
}

/// The functions of a table over a registrar in C++.
template <registrar R>
struct c_calls {
  using registration_type = typename R::registration_type;
  static_assert(sizeof(registration_type) <= sizeof(pinfold_registration));

  static int told(const error& failure, pinfold_error* to) {
    *to = {0, static_cast<int>(failure.kind), failure.native, failure.message};
    return -1 - static_cast<int>(failure.code);
  }
  static range memory_of(const pinfold_open_request& what) {
    EXPECT_EQ(what.argument, argument()) << "each request passes it";
    const auto begin = reinterpret_cast<std::uintptr_t>(what.address);
    return {begin, begin + what.bytes};
  }
  static void* argument() { return reinterpret_cast<void*>(0x5eed); }

  static int open(void* self, const pinfold_open_request* what, pinfold_registration* made, pinfold_error* failure) {
    auto got = static_cast<R*>(self)->open(memory_of(*what), static_cast<access_flags>(what->access));
    if (!got) return told(got.error(), failure);
    std::memcpy(made, &*got, sizeof *got);
    return PINFOLD_OK;
  }
  static int close(void* self, const pinfold_registration* made, pinfold_error* failure) {
    registration_type of;
    std::memcpy(&of, made, sizeof of);
    auto done = static_cast<R*>(self)->close(of);
    return done ? PINFOLD_OK : told(done.error(), failure);
  }
  static void open_many(void* self, const pinfold_open_request* what, std::size_t count, pinfold_registration* made,
                        int* codes, pinfold_error* failures) {
    for (std::size_t i = 0; i < count; ++i) codes[i] = open(self, &what[i], &made[i], &failures[i]);
  }

  static pinfold_registrar table(const R& over) {
    const registrar_limits limits = over.limits();
    pinfold_registrar calls{};
    calls.size = sizeof calls;
    calls.name = R::name;
    calls.granularity = limits.granularity;
    calls.max_bytes = limits.max_bytes;
    calls.access = static_cast<std::uint32_t>(limits.supported);
    calls.open = open;
    calls.close = close;
    if constexpr (group_registrar<R>) calls.open_many = open_many;
    return calls;
  }
};

/// A lease of the C interface that releases itself.
template <registrar R>
class c_lease {
 public:
  c_lease() = default;
  explicit c_lease(pinfold_lease held) : held_(held) {}
  c_lease(c_lease&& other) noexcept : held_(std::exchange(other.held_, {})) {}
  c_lease& operator=(c_lease&& other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~c_lease() { static_cast<void>(pinfold_release(held_)); }

  explicit operator bool() const { return held_.pin != 0; }
  [[nodiscard]] bool stale() const { return pinfold_is_stale(held_) != 0; }
  result<void> release() { return from_c(pinfold_release(std::exchange(held_, {}))); }
  [[nodiscard]] typename R::registration_type registration() const {
    typename R::registration_type copy{};
    std::memcpy(&copy, pinfold_registration_of(held_), sizeof copy);
    return copy;
  }

 private:
  pinfold_lease held_{};
};

template <registrar R>
class c_cache {
 public:
  using lease = c_lease<R>;

  explicit c_cache(R over, const cache_options& options = {})
      : over_(std::make_unique<R>(std::move(over))), sink_(std::make_unique<event_sink>(options.sink)) {
    const auto table = c_calls<R>::table(*over_);
    auto how = in_c(options);
    how.sink_self = sink_.get();
    EXPECT_EQ(pinfold_create(&table, over_.get(), &how, &cache_), PINFOLD_OK) << pinfold_last_error()->message;
  }
  c_cache(const c_cache&) = delete;
  c_cache& operator=(const c_cache&) = delete;
  ~c_cache() { EXPECT_EQ(pinfold_destroy(cache_), PINFOLD_OK); }

  result<lease> acquire(const void* address, std::size_t bytes, access_flags need = local_access,
                        acquire_options how = {}) {
    pinfold_acquire_options options{};
    options.size = sizeof options;
    if (how.persistent) options.flags |= PINFOLD_PERSISTENT;
    if (how.bypass) options.flags |= PINFOLD_BYPASS;
    options.argument = c_calls<R>::argument();
    const auto got = pinfold_acquire_with(cache_, address, bytes, static_cast<std::uint32_t>(need), &options);
    if (got.pin == 0) return tl::unexpected(from_c(*pinfold_last_error()));
    return lease(got);
  }
  std::optional<lease> find(const void* address, std::size_t bytes, access_flags need = local_access) {
    const auto got = pinfold_find(cache_, address, bytes, static_cast<std::uint32_t>(need));
    if (got.pin == 0) return std::nullopt;
    return lease(got);
  }
  result<std::vector<lease>> acquire_batch(std::span<const range> ranges, access_flags need, const batch_options& how) {
    std::vector<pinfold_range> asked;
    for (const auto& one : ranges) asked.push_back({one.begin, one.size()});
    std::vector<pinfold_lease> got(ranges.size());
    pinfold_batch_options options{};
    options.size = sizeof options;
    options.workers = how.workers;
    options.argument = c_calls<R>::argument();
    if (pinfold_acquire_batch(cache_, asked.data(), asked.size(), static_cast<std::uint32_t>(need), &options,
                              got.data()) != PINFOLD_OK)
      return tl::unexpected(from_c(*pinfold_last_error()));
    std::vector<lease> held;
    for (const auto& one : got) held.emplace_back(one);
    return held;
  }
  void invalidate(const void* address, std::size_t bytes) {
    EXPECT_EQ(pinfold_invalidate(cache_, address, bytes), PINFOLD_OK);
  }
  void unpersist(const void* address, std::size_t bytes) {
    EXPECT_EQ(pinfold_unpersist(cache_, address, bytes), PINFOLD_OK);
  }
  result<void> progress() { return from_c(pinfold_progress(cache_)); }
  result<void> flush() { return from_c(pinfold_flush(cache_)); }
  [[nodiscard]] pinfold::statistics statistics() const {
    pinfold_statistics now{};
    now.size = sizeof now;
    EXPECT_EQ(pinfold_statistics_of(cache_, &now), PINFOLD_OK);
    return from_c(now);
  }
  [[nodiscard]] std::vector<entry_info> dump() const {
    std::vector<entry_info> all;
    EXPECT_EQ(pinfold_dump(
                  cache_,
                  [](void* self, const pinfold_entry* one) {
                    entry_info to;
                    to.covered = {one->base, one->base + one->bytes};
                    to.leases = one->leases;
                    to.bypass = one->bypass != 0;
                    while (std::string_view(name_of(to.state)) != one->state)
                      to.state = static_cast<entry_state>(static_cast<int>(to.state) + 1);
                    static_cast<std::vector<entry_info>*>(self)->push_back(to);
                    return 0;
                  },
                  &all),
              PINFOLD_OK);
    return all;
  }
  [[nodiscard]] R& backend() { return *over_; }

 private:
  std::unique_ptr<R> over_;
  std::unique_ptr<event_sink> sink_;
  pinfold_cache* cache_ = nullptr;
};

struct through_c {
  template <registrar R>
  using cache = c_cache<R>;
};

}  // namespace pinfold::testing
