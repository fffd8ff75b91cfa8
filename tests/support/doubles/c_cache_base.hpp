// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the caches of both kinds have that go through the C interface, see `c_cache.hpp` and `c_import_cache.hpp`.
#pragma once

#include <pinfold/events.hpp>
#include <pinfold/options.hpp>
#include <pinfold/pinfold.h>
#include <pinfold/restoration.hpp>
#include <pinfold/statistics.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
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
  if (from.serial) to.flags |= PINFOLD_SERIAL;
  to.merge = static_cast<std::uint32_t>(from.merge);
  to.merge_limit = from.merge_limit;
  to.shards = from.shards;
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
  to.evicted = now.evicted;
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

/// Describes a failure to C; returns its code.
inline int failed_in_c(const error& failure, pinfold_error* to) {
  *to = {0, static_cast<int>(failure.kind), failure.native, failure.message};
  return -1 - static_cast<int>(failure.code);
}

/// The argument of every request, which must arrive at the registrar or importer.
inline void* argument_in_c() { return reinterpret_cast<void*>(0x5eed); }

/// A lease of the C interface that releases itself.
template <class Registration>
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
  [[nodiscard]] void* data() const { return held_.data; }
  result<void> release() { return from_c(pinfold_release(std::exchange(held_, {}))); }
  [[nodiscard]] Registration registration() const {
    Registration copy{};
    std::memcpy(static_cast<void*>(&copy), pinfold_registration_of(held_), sizeof copy);
    return copy;
  }

 private:
  pinfold_lease held_{};
};

/// Whether a restoration goes on, whose requests have no argument.
inline std::atomic<bool> restoring_in_c{false};

/// A restoration of the C interface that ends itself. The test waits for it before it calls a cache again.
class c_restoration {
 public:
  explicit c_restoration(pinfold_restoration* begun) : begun_(begun) {}

  void wait() {
    EXPECT_EQ(pinfold_restoration_wait(begun_.get(), UINT64_MAX), PINFOLD_OK);
    restoring_in_c = false;
  }
  [[nodiscard]] restore_progress progress() const {
    pinfold_restore_progress now{};
    now.size = sizeof now;
    EXPECT_EQ(pinfold_restoration_progress(begun_.get(), &now), PINFOLD_OK);
    return {now.total, now.restored, now.skipped, now.failed, now.bytes};
  }

 private:
  struct ender {
    void operator()(pinfold_restoration* ending) const { EXPECT_EQ(pinfold_end_restoration(ending), PINFOLD_OK); }
  };
  std::unique_ptr<pinfold_restoration, ender> begun_;
};

/// Owns the cache, and what it is made over.
template <class Over>
class c_cache_base {
 public:
  c_cache_base(const c_cache_base&) = delete;
  c_cache_base& operator=(const c_cache_base&) = delete;
  ~c_cache_base() { EXPECT_EQ(pinfold_destroy(cache_), PINFOLD_OK); }

  result<void> progress() { return from_c(pinfold_progress(cache_)); }
  result<void> flush() { return from_c(pinfold_flush(cache_)); }
  result<void> quiesce() { return from_c(pinfold_quiesce(cache_)); }
  std::size_t evict(std::size_t most) { return pinfold_evict(cache_, most); }
  result<c_restoration> restore(const restore_options& how) {
    pinfold_restoration* begun = nullptr;
    restoring_in_c = true;
    auto done = from_c(pinfold_restore(cache_, how.workers, &begun));
    if (!done) return tl::unexpected(done.error());
    return c_restoration(begun);
  }
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
                    to.peer = {one->peer};
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
  [[nodiscard]] Over& backend() { return *over_; }

 protected:
  using lease = c_lease<typename Over::registration_type>;

  c_cache_base(Over over, const cache_options& options)
      : over_(std::make_unique<Over>(std::move(over))),
        sink_(std::make_unique<event_sink>(options.sink)),
        options_(in_c(options)) {
    options_.sink_self = sink_.get();
  }
  static result<lease> leased(pinfold_lease got) {
    if (got.pin == 0) return tl::unexpected(from_c(*pinfold_last_error()));
    return lease(got);
  }
  static std::optional<lease> found(pinfold_lease got) {
    if (got.pin == 0) return std::nullopt;
    return lease(got);
  }

  std::unique_ptr<Over> over_;
  std::unique_ptr<event_sink> sink_;
  pinfold_options options_;
  pinfold_cache* cache_ = nullptr;
};

}  // namespace pinfold::testing
