// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The type erasure of registrars. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/pages.hpp>
#include <pinfold/registrar.hpp>

#include <array>
#include <cstring>
#include <span>

namespace pinfold::detail {

/// The engine's calls of a registrar. The engine has one type; the registrar's objects are bytes to it.
template <registrar R>
class local_driver {
 public:
  /// Returns the table of functions that call the registrar, which must outlive the table's use.
  static driver table(R& registrar) noexcept {
    driver table{
        .self = &registrar,
        .name = R::name,
        .token_bytes = 0,
        .object_bytes = sizeof(typename R::registration_type),
        .allows_duplicates = true,
        .check = check,
        .open = open,
        .close = close,
    };
    if constexpr (group_registrar<R>) table.open_many = open_many;
    if constexpr (informed_registrar<R>) table.invalidated = invalidated;
    table.exclusive_in_process = is_exclusive_in_process<R>;
    // Rounding out may read the process's mappings.
    table.cancellation_points = has_cancellation_points<R> || registrar.limits().granularity > 1;
    return table;
  }

 private:
  // Writes the result where the engine reads it, without copies.
  static void fill(opened& answer, const open_request& what, const typename R::registration_type& made) noexcept {
    answer.covered = what.extent;
    answer.data = reinterpret_cast<void*>(what.extent.begin);
    answer.bytes = what.extent.size();
    std::memcpy(answer.object.bytes.data(), &made, sizeof made);
  }

  // All requests of a group have the access of the batch, plus access that the engine added from entries around a
  // request. Passes each run of equal access to the registrar in one call.
  static void open_many(void* self, std::span<const open_request> what, std::span<result<opened>> made) noexcept
    requires group_registrar<R>
  {
    std::array<range, most_in_group> extents;
    std::array<result<typename R::registration_type>, most_in_group> answers;
    for (std::size_t first = 0, last = 0; first < what.size(); first = last) {
      while (last < what.size() && what[last].access == what[first].access) extents[last] = what[last].extent, ++last;
      static_cast<R*>(self)->open_many(std::span<const range>(extents).subspan(first, last - first), what[first].access,
                                       std::span(answers).subspan(first, last - first));
    }
    for (std::size_t i = 0; i < what.size(); ++i) {
      if (!answers[i]) {
        made[i] = tl::unexpected(answers[i].error());
      } else {
        made[i] = result<opened>();
        fill(*made[i], what[i], *answers[i]);
        if constexpr (borrowing_registrar<R>) made[i]->for_one_lease = !static_cast<R*>(self)->may_keep(*answers[i]);
      }
    }
  }

  static result<range> check(const void* self, const request& what) noexcept {
    const registrar_limits limits = static_cast<const R*>(self)->limits();
    if (!contains_all(limits.supported, what.need))
      return fail(errc::unsupported, "the registrar cannot grant this access");
    const bool exact = limits.granularity <= 1 || any_remote(what.need);
    range extent = exact ? what.wanted : rounded_out(what.wanted, limits.granularity);
    if (extent.size() > limits.max_bytes && !any_remote(what.need))
      extent = aligned_out(what.wanted, limits.granularity);  // huge pages alone must not make it too large
    if (extent.size() > limits.max_bytes)
      return fail(errc::too_large, "the range exceeds the registrar's largest registration: use acquire_chunks");
    return extent;
  }

  static result<opened> open(void* self, const open_request& what) noexcept {
    const auto made = static_cast<R*>(self)->open(what.extent, what.access);
    result<opened> answer;
    if (made) {
      fill(*answer, what, *made);
      if constexpr (borrowing_registrar<R>) answer->for_one_lease = !static_cast<R*>(self)->may_keep(*made);
    } else {
      answer = tl::unexpected(made.error());
    }
    return answer;
  }

  static typename R::registration_type in(const registration& object) noexcept {
    typename R::registration_type made;
    std::memcpy(&made, object.bytes.data(), sizeof made);
    return made;
  }

  static result<void> close(void* self, const registration& object) noexcept {
    return static_cast<R*>(self)->close(in(object));
  }

  static void invalidated(void* self, const registration& object) noexcept
    requires informed_registrar<R>
  {
    static_cast<R*>(self)->invalidated(in(object));
  }
};

}  // namespace pinfold::detail
