// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One interface to several caches, for programs with several devices or domains.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/detail/together.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pinfold {

/// Leases on one piece of memory, one from each chosen cache. Move-only; the rules of `lease` apply.
template <registrar R>
class [[nodiscard]] set_lease {
 public:
  /// Holds nothing.
  set_lease() = default;

  /// Returns the number of chosen caches.
  [[nodiscard]] std::size_t size() const noexcept { return leases_.size(); }

  /// Returns the lease from choice `number`, counted from 0; an empty lease if there is no such choice.
  [[nodiscard]] const lease<R>& operator[](std::size_t number) const noexcept {
    return number < leases_.size() ? leases_[number] : none_;
  }

 private:
  inline static const lease<R> none_{};
  template <registrar>
  friend class cache_set;
  explicit set_lease(std::vector<lease<R>> leases) noexcept : leases_(std::move(leases)) {}

  std::vector<lease<R>> leases_;
};

/// A set of caches that registers a buffer with several devices in one call. The caches belong to the caller, must
/// outlive the set, and may be used directly as well. Every member may be called on any thread at any time.
template <registrar R>
class cache_set {
 public:
  /// Numbers the members from 0, in this order. No pointer may be null. Throws only `std::bad_alloc`.
  explicit cache_set(std::span<cache<R>* const> members) : members_(members.begin(), members.end()) {}

  /// Returns the number of members.
  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  /// Returns member `number`, which must be below `size()`.
  [[nodiscard]] cache<R>& operator[](std::size_t number) const noexcept { return *members_[number]; }

  /// Returns a lease from each chosen member, all or nothing. On an error the caller holds no lease, though the caches
  /// may keep what they registered, as after any release. Members that have the memory registered already are served on
  /// the caller's thread. If several members have to register, they do so in parallel, each on a thread of its own. Do
  /// not use this call with back ends that accept one thread only: fabric domains that are not FI_THREAD_SAFE, io_uring
  /// rings with IORING_SETUP_SINGLE_ISSUER. Acquire from their caches one by one.
  ///
  /// Errors: `invalid_argument` (no such member), and those of `cache::acquire`, from the first choice that failed. If
  /// the caches wait for room (`when_full::wait`), two calls can wait for each other until `full_timeout`.
  [[nodiscard]] result<set_lease<R>> acquire(void* address, std::size_t bytes, access_flags need,
                                             std::span<const std::size_t> chosen) noexcept {
    return detail::or_error(no_memory, no_memory, [&] { return acquire_chosen(address, bytes, need, chosen); });
  }

  /// As above, from every member. Returns `closed` if the set has no members, as when it was moved from.
  [[nodiscard]] result<set_lease<R>> acquire(void* address, std::size_t bytes,
                                             access_flags need = local_access) noexcept {
    return detail::or_error(no_memory, no_memory, [&] { return acquire_all(address, bytes, need); });
  }

  /// As above, for memory that this process does not write through the pointer, as in `cache::acquire`.
  [[nodiscard]] result<set_lease<R>> acquire(const void* address, std::size_t bytes, access_flags need,
                                             std::span<const std::size_t> chosen) noexcept {
    if (any_write(need)) return detail::write_to_const();
    return acquire(const_cast<void*>(address), bytes, need, chosen);
  }
  /// As above, from every member.
  [[nodiscard]] result<set_lease<R>> acquire(const void* address, std::size_t bytes,
                                             access_flags need = access_flags::local_read) noexcept {
    if (any_write(need)) return detail::write_to_const();
    return acquire(const_cast<void*>(address), bytes, need);
  }

  /// Calls `cache::invalidate` on every member.
  void invalidate(const void* address, std::size_t bytes) noexcept {
    for (auto* const one : members_) one->invalidate(address, bytes);
  }

 private:
  static constexpr const char* no_memory = "no memory for the leases of a set";

  // This function and the next throw std::bad_alloc.
  [[nodiscard]] result<set_lease<R>> acquire_chosen(void* address, std::size_t bytes, access_flags need,
                                                    std::span<const std::size_t> chosen) {
    for (const std::size_t number : chosen)
      if (number >= members_.size()) return fail(errc::invalid_argument, "the set has no cache with this number");
    std::vector<lease<R>> leases(chosen.size());
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (auto found = members_[chosen[i]]->find(address, bytes, need))
        leases[i] = std::move(*found);
      else
        missing.push_back(i);

    if (auto got = acquire_missing(address, bytes, need, chosen, missing, leases); !got)
      return tl::unexpected(got.error());
    return set_lease<R>(std::move(leases));
  }

  [[nodiscard]] result<set_lease<R>> acquire_all(void* address, std::size_t bytes, access_flags need) {
    if (members_.empty()) return fail(errc::closed, "the set has no caches");
    std::vector<std::size_t> all(members_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return acquire_chosen(address, bytes, need, all);
  }

  // Throws std::bad_alloc, before it acquires anything.
  [[nodiscard]] result<void> acquire_missing(void* address, std::size_t bytes, access_flags need,
                                             std::span<const std::size_t> chosen,
                                             const std::vector<std::size_t>& missing, std::vector<lease<R>>& leases) {
    std::vector<std::optional<error>> failures(missing.size());
    auto acquire_one = [&](std::size_t which) noexcept {
      const auto number = missing[which];
      if (auto got = members_[chosen[number]]->acquire(address, bytes, need))
        leases[number] = std::move(*got);
      else
        failures[which] = got.error();
    };
    detail::run_together(missing.size(), acquire_one);
    for (const auto& failed : failures)
      if (failed) return tl::unexpected(*failed);
    return {};
  }

  std::vector<cache<R>*> members_;
};

}  // namespace pinfold
