// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Leases on one piece of memory from several caches.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/set_options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold {

/// The keys of one member of a set.
template <registrar R>
struct member_registration {
  std::size_t member;                          ///< its number in the set
  typename R::registration_type registration;  ///< what its driver made
};

/// Leases on one piece of memory, one from each chosen cache. Move-only; the rules of `lease` apply.
///
/// A choice has a lease, or a failure, or neither: then it was not needed yet, and `at` registers. `at` and `retry` of
/// different choices may be called on different threads at the same time, beside const members that name a choice.
/// Nothing else may be called at the same time.
template <registrar R>
class [[nodiscard]] set_lease {
 public:
  /// Holds nothing.
  set_lease() = default;

  /// Returns the number of chosen caches.
  [[nodiscard]] std::size_t size() const noexcept { return choices_.size(); }

  /// Returns the lease from choice `number`, counted from 0; an empty lease if there is no such choice, if it failed,
  /// or if it was not needed yet.
  [[nodiscard]] const lease<R>& operator[](std::size_t number) const noexcept {
    return number < choices_.size() ? choices_[number].held : none_;
  }

  /// Returns the lease from choice `number`, which lives as long as this object. Registers the memory now if the policy
  /// has left that for later; the cache must still exist then.
  ///
  /// Errors: `invalid_argument` (no such choice), those of `cache::acquire`, and `stale_handle` if the memory was
  /// replaced after the first leases were acquired: the choices would not be on the same memory. A choice that failed
  /// returns its failure again. A cache notices that memory was replaced if it has a monitor, or through `invalidate`.
  [[nodiscard]] result<const lease<R>*> at(std::size_t number) noexcept {
    if (number >= choices_.size()) return fail(errc::invalid_argument, "the lease has no choice with this number");
    if (const auto& why = choices_[number].why) return tl::unexpected(*why);
    return retry(number);
  }

  /// As `at`, but also tries again if the choice failed.
  [[nodiscard]] result<const lease<R>*> retry(std::size_t number) noexcept {
    if (number >= choices_.size()) return fail(errc::invalid_argument, "the lease has no choice with this number");
    choice& one = choices_[number];
    if (!one.held) acquire_late(one);
    if (one.why) return tl::unexpected(*one.why);
    return &one.held;
  }

  /// Returns the keys of all choices that have a lease, in the order of the choices. Throws `std::bad_alloc`.
  [[nodiscard]] std::vector<member_registration<R>> registrations() const {
    std::vector<member_registration<R>> all;
    for (const choice& one : choices_)
      if (one.held) all.push_back({one.member, one.held.registration()});
    return all;
  }

  /// Returns the choices that failed, in the order of the choices. Throws `std::bad_alloc`.
  [[nodiscard]] std::vector<member_failure> failures() const {
    std::vector<member_failure> all;
    for (const choice& one : choices_)
      if (one.why) all.push_back({one.member, *one.why});
    return all;
  }

  /// Returns how many choices were not needed yet.
  [[nodiscard]] std::size_t pending() const noexcept {
    std::size_t count = 0;
    for (const choice& one : choices_) count += !one.held && !one.why ? 1 : 0;
    return count;
  }

  /// Releases all leases. Returns the error of the first close that fails.
  result<void> release() noexcept {
    result<void> first;
    for (choice& one : choices_)
      if (auto released = one.held.release(); first && !released) first = released;
    choices_.clear();
    return first;
  }

 private:
  inline static const lease<R> none_{};
  template <registrar>
  friend class cache_set;

  struct choice {
    std::size_t member = 0;
    cache<R>* from = nullptr;
    lease<R> held{};
    std::optional<error> why{};
    bool first = false;  // whether the set's own acquire made `held`, which is constant then
  };
  struct request {
    void* address = nullptr;
    std::size_t bytes = 0;
    access_flags need = access_flags::none;
  };

  set_lease(request what, std::vector<choice> choices) noexcept : what_(what), choices_(std::move(choices)) {}

  static bool find_one(choice& one, const request& what) noexcept {
    auto found = one.from->find(what.address, what.bytes, what.need);
    if (found) one.held = std::move(*found);
    return found.has_value();
  }
  static void acquire_one(choice& one, const request& what) noexcept {
    one.why.reset();
    if (auto got = one.from->acquire(what.address, what.bytes, what.need))
      one.held = std::move(*got);
    else
      one.why = got.error();
  }

  // Checks the first leases after the acquire; a later event marks all leases alike.
  void acquire_late(choice& one) noexcept {
    acquire_one(one, what_);
    if (!one.held || !first_are_stale()) return;
    one.from->invalidate(what_.address, what_.bytes);  // it may be of the memory before as well
    static_cast<void>(one.held.release());             // if the close fails, the cache retries it
    one.why = error{errc::stale_handle, native_kind::none, 0, "the memory was replaced since the set acquired it"};
  }

  // A request for the memory makes a cache process what its monitors have reported.
  [[nodiscard]] bool first_are_stale() const noexcept {
    bool stale = false;
    for (const choice& one : choices_)
      if (one.first && one.held) {
        static_cast<void>(one.from->find(what_.address, what_.bytes, what_.need));
        stale = stale || one.held.stale() || is_of_other_memory(one);
      }
    return stale;
  }

  // No event reports that memory of an identifying registrar was freed, and the look-up may have found a newer entry.
  [[nodiscard]] bool is_of_other_memory([[maybe_unused]] const choice& one) const noexcept {
    if constexpr (identifying_registrar<R>) {
      const auto memory = range::of(reinterpret_cast<std::uintptr_t>(what_.address), what_.bytes);
      const auto* const behind = one.from->backend_or_null();
      return !memory || behind == nullptr || !behind->still_is(one.held.registration(), *memory);
    } else {
      return false;
    }
  }

  request what_{};
  std::vector<choice> choices_;
};

}  // namespace pinfold
