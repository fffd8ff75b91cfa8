// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The type erasure of importers. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/importer.hpp>

#include <cstring>
#include <functional>
#include <utility>

namespace pinfold::detail {

/// The engine's calls of an importer. The engine has one type; handles and registrations are bytes to it.
template <importer I>
class import_driver {
 public:
  /// Returns the table of functions that call the importer, which must outlive the table's use.
  static driver table(I& importer) noexcept {
    driver made{
        .self = &importer,
        .name = I::name,
        .token_bytes = sizeof(handle_type),
        .object_bytes = sizeof(typename I::registration_type),
        .allows_duplicates = I::allows_duplicates,
        .check = check,
        .open = open,
        .close = close,
    };
    if constexpr (end_telling_importer<I>)
      made.tell_ends = [](void* self, std::function<void(peer_id, range, const void*)> to) {
        static_cast<I*>(self)->tell_ends(
            [to = std::move(to)](peer_id peer, range where, const handle_type& handle) { to(peer, where, &handle); });
      };
    return made;
  }

 private:
  using handle_type = typename I::handle_type;

  static const handle_type& as_handle(const void* token) noexcept { return *static_cast<const handle_type*>(token); }

  static result<range> check(const void* self, const request& what) noexcept {
    auto allocation = static_cast<const I*>(self)->check(as_handle(what.token));
    if (allocation && !allocation->contains(what.wanted))
      return fail(errc::invalid_range, "the request reaches outside the allocation of its handle");
    return allocation;
  }

  static result<opened> open(void* self, const open_request& what) noexcept {
    auto made = static_cast<I*>(self)->open(what.peer, as_handle(what.token));
    if (!made) return tl::unexpected(made.error());
    opened plain{made->covered, made->data, made->bytes, {}};
    std::memcpy(plain.object.bytes.data(), &made->registration, sizeof made->registration);
    return plain;
  }

  static result<void> close(void* self, const registration& object) noexcept {
    typename I::registration_type registration;
    std::memcpy(&registration, object.bytes.data(), sizeof registration);
    return static_cast<I*>(self)->close(registration);
  }
};

}  // namespace pinfold::detail
