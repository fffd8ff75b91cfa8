// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One front for several caches, as a program with several devices or domains has them.
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

/// Leases on one piece of memory, one from each cache that was chosen. Move-only; rules are those of `lease`.
template <registrar R>
class [[nodiscard]] set_lease {
 public:
  /// Holds nothing.
  set_lease() = default;

  /// How many caches were chosen.
  [[nodiscard]] std::size_t size() const noexcept { return leases_.size(); }

  /// The lease of the cache that was chosen as the one with this number, from 0; an empty one for any other number.
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

/// Registers a buffer with several devices in one call. The caches belong to the caller, must outlive the set, and may
/// be used by themselves. Every member may be called on any thread at any time.
template <registrar R>
class cache_set {
 public:
  /// Members are numbered from 0, in this order. None may be null. Throws only `std::bad_alloc`.
  explicit cache_set(std::span<cache<R>* const> members) : members_(members.begin(), members.end()) {}

  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  /// The member with this number, which must be below `size()`.
  [[nodiscard]] cache<R>& operator[](std::size_t number) const noexcept { return *members_[number]; }

  /// A lease from each member chosen by its number, all or nothing: after an error nothing is held, though what was
  /// registered may be kept, as after any lease. What is registered already is found on the caller's thread; if several
  /// members have to register, they do so at the same time, each on a thread of its own.
  /// That is not for back ends which want one thread: fabric domains that are not FI_THREAD_SAFE, io_uring rings with
  /// IORING_SETUP_SINGLE_ISSUER. Acquire from their caches one by one.
  ///
  /// Errors: `invalid_argument` (no such member), and those of `cache::acquire`: of the first choice that failed.
  /// Between caches that wait for room (`when_full::wait`) two calls can wait for each other, until `full_timeout`.
  [[nodiscard]] result<set_lease<R>> acquire(const void* address, std::size_t bytes, rights need,
                                             std::span<const std::size_t> chosen) noexcept {
    return detail::or_error(no_memory, no_memory, [&] { return acquire_chosen(address, bytes, need, chosen); });
  }

  /// The same from every member. `closed` when the set has none: it was moved from.
  [[nodiscard]] result<set_lease<R>> acquire(const void* address, std::size_t bytes,
                                             rights need = local_access) noexcept {
    return detail::or_error(no_memory, no_memory, [&] { return acquire_all(address, bytes, need); });
  }

  /// As `cache::invalidate`, for every member.
  void invalidate(const void* address, std::size_t bytes) noexcept {
    for (auto* const one : members_) one->invalidate(address, bytes);
  }

 private:
  static constexpr const char* no_memory = "no memory for the leases of a set";

  // This and the next throw std::bad_alloc.
  [[nodiscard]] result<set_lease<R>> acquire_chosen(const void* address, std::size_t bytes, rights need,
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

  [[nodiscard]] result<set_lease<R>> acquire_all(const void* address, std::size_t bytes, rights need) {
    if (members_.empty()) return fail(errc::closed, "the set has no caches");
    std::vector<std::size_t> all(members_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return acquire_chosen(address, bytes, need, all);
  }

  // Throws std::bad_alloc, before anything is acquired.
  [[nodiscard]] result<void> acquire_missing(const void* address, std::size_t bytes, rights need,
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
