// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One interface to several caches, for programs with several devices or domains.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/detail/set_plan.hpp>
#include <pinfold/dma_buf.hpp>
#include <pinfold/set_lease.hpp>
#include <pinfold/set_options.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pinfold {

/// A set of caches that registers a buffer with several devices in one call. The caches belong to the caller, must
/// outlive the set, and may be used directly as well. Every member may be called on any thread at any time.
template <registrar R>
class cache_set {
 public:
  /// Numbers the members from 0, in this order. No pointer may be null. `distances` are those of the members, in the
  /// same order, for `set_policy::near_first`; a member without one has the distance 0. Throws only `std::bad_alloc`.
  explicit cache_set(std::span<cache<R>* const> members, std::span<const std::uint32_t> distances = {})
      : members_(members.begin(), members.end()), distances_(distances.begin(), distances.end()) {
    distances_.resize(members_.size());
  }

  /// Returns the number of members.
  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  /// Returns member `number`, which must be below `size()`.
  [[nodiscard]] cache<R>& operator[](std::size_t number) const noexcept { return *members_[number]; }

  /// Returns leases from the chosen members as the policy says, by default from each, all or nothing. On an error the
  /// caller holds no lease, though the caches may keep what they registered, as after any release. Members that have
  /// the memory registered already are served on the caller's thread. If several members have to register, they do so
  /// in parallel, each on a thread of its own. With back ends that accept one thread only, use
  /// `set_policy::fixed_order`: fabric domains that are not FI_THREAD_SAFE, io_uring rings with
  /// IORING_SETUP_SINGLE_ISSUER.
  ///
  /// Errors: `invalid_argument` (no such member, `set_options::required`), `out_of_resources` (no memory, or
  /// `set_options::distance` threw), and those of `cache::acquire`, from the first choice that failed. If the caches
  /// wait for room (`when_full::wait`), two calls can wait for each other until `full_timeout`.
  [[nodiscard]] result<set_lease<R>> acquire(void* address, std::size_t bytes, access_flags need,
                                             std::span<const std::size_t> chosen,
                                             const set_options& how = {}) noexcept {
    return detail::or_error(no_memory, threw, [&] { return acquire_chosen({address, bytes, need}, chosen, how); });
  }

  /// As above, from every member. Returns `closed` if the set has no members, as when it was moved from.
  [[nodiscard]] result<set_lease<R>> acquire(void* address, std::size_t bytes, access_flags need = local_access,
                                             const set_options& how = {}) noexcept {
    return detail::or_error(no_memory, threw, [&] { return acquire_all({address, bytes, need}, how); });
  }

  /// As above, for memory that this process does not write through the pointer, as in `cache::acquire`.
  [[nodiscard]] result<set_lease<R>> acquire(const void* address, std::size_t bytes, access_flags need,
                                             std::span<const std::size_t> chosen,
                                             const set_options& how = {}) noexcept {
    if (any_write(need)) return detail::write_to_const();
    return acquire(const_cast<void*>(address), bytes, need, chosen, how);
  }
  /// As above, from every member.
  [[nodiscard]] result<set_lease<R>> acquire(const void* address, std::size_t bytes,
                                             access_flags need = access_flags::local_read,
                                             const set_options& how = {}) noexcept {
    if (any_write(need)) return detail::write_to_const();
    return acquire(const_cast<void*>(address), bytes, need, how);
  }

  /// Calls `cache::invalidate` on every member.
  void invalidate(const void* address, std::size_t bytes) noexcept {
    for (auto* const one : members_) one->invalidate(address, bytes);
  }

 private:
  using request = typename set_lease<R>::request;
  using choice = typename set_lease<R>::choice;

  static constexpr const char* no_memory = "no memory for the leases of a set";
  static constexpr const char* threw = "the function for the distances of a set threw an exception";

  // This function and the following throw std::bad_alloc, and what the caller's function throws: the leases go with the
  // choices.
  [[nodiscard]] result<set_lease<R>> acquire_chosen(const request& what, std::span<const std::size_t> chosen,
                                                    const set_options& how) {
    for (const std::size_t number : chosen)
      if (number >= members_.size()) return fail(errc::invalid_argument, "the set has no cache with this number");
    std::vector<choice> choices(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) choose(choices[i], chosen[i]);
    return acquire_choices(what, std::move(choices), how);
  }

  [[nodiscard]] result<set_lease<R>> acquire_all(const request& what, const set_options& how) {
    if (members_.empty()) return fail(errc::closed, "the set has no caches");
    std::vector<choice> choices(members_.size());
    for (std::size_t i = 0; i < choices.size(); ++i) choose(choices[i], i);
    return acquire_choices(what, std::move(choices), how);
  }

  void choose(choice& one, std::size_t number) const noexcept {
    one.member = number;
    one.from = members_[number];
  }

  [[nodiscard]] result<set_lease<R>> acquire_choices(const request& what, std::vector<choice> choices,
                                                     const set_options& how) {
    const bool plain = is_plain(how);
    if (plain && find_all(what, choices)) return set_lease<R>(what, std::move(choices));
    const auto distances = distances_to(what, choices, how);
    if (!distances) return tl::unexpected(distances.error());
    const auto plan = detail::plan_set(how, choices.size(), *distances);
    if (!plan) return tl::unexpected(plan.error());
    const auto exports = begin_exports(what, how);
    if (!exports) return tl::unexpected(exports.error());

    asked_choices asked{choices, what, plain};
    if (auto got = detail::ask_members(*plan, asked.calls()); !got) return tl::unexpected(got.error());
    for (choice& one : choices) one.first = static_cast<bool>(one.held);
    return set_lease<R>(what, std::move(choices));
  }

  // Whether all members are asked, in any order, and none may fail: then hits need no plan.
  static bool is_plain(const set_options& how) noexcept {
    return how.required == every_member && (how.policy == set_policy::all || how.policy == set_policy::fixed_order);
  }

  // Keeps the hits that it finds.
  static bool find_all(const request& what, std::vector<choice>& choices) noexcept {
    bool all = true;
    for (choice& one : choices) all = set_lease<R>::find_one(one, what) && all;
    for (choice& one : choices) one.first = all;
    return all;
  }

  [[nodiscard]] result<std::vector<std::uint32_t>> distances_to(const request& what, const std::vector<choice>& choices,
                                                                const set_options& how) const {
    std::vector<std::uint32_t> all;
    if (how.policy != set_policy::near_first) return all;
    const auto memory = range::of(reinterpret_cast<std::uintptr_t>(what.address), what.bytes);
    if (!memory) return tl::unexpected(memory.error());
    for (const choice& one : choices)
      all.push_back(how.distance ? how.distance(one.member, *memory) : distances_[one.member]);
    return all;
  }

  // While the result lives, all members use one descriptor of an allocation.
  static result<shared_dma_buf::request> begin_exports(const request& what, const set_options& how) noexcept {
    if (how.dma_bufs == nullptr) return {};
    const auto memory = range::of(reinterpret_cast<std::uintptr_t>(what.address), what.bytes);
    if (!memory) return tl::unexpected(memory.error());
    return how.dma_bufs->begin(*memory);
  }

  struct asked_choices {
    std::vector<choice>& choices;
    const request& what;
    bool looked;  // whether what is registered already was found before

    [[nodiscard]] detail::set_calls calls() noexcept {
      return {this,
              [](void* self, std::size_t number) {
                auto& own = *static_cast<asked_choices*>(self);
                return own.looked ? static_cast<bool>(own.choices[number].held)
                                  : set_lease<R>::find_one(own.choices[number], own.what);
              },
              [](void* self, std::size_t number) {
                auto& own = *static_cast<asked_choices*>(self);
                set_lease<R>::acquire_one(own.choices[number], own.what);
              },
              [](void* self, std::size_t number) -> const error* {
                const auto& why = static_cast<asked_choices*>(self)->choices[number].why;
                return why ? &*why : nullptr;
              }};
    }
  };

  std::vector<cache<R>*> members_;
  std::vector<std::uint32_t> distances_;
};

}  // namespace pinfold
