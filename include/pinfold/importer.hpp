// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface of a back end that `import_cache` can cache. `docs/use/registrars.md` is the porting page. A new
/// importer has to pass the conformance suite in `tests/conformance`.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

namespace pinfold {

/// The result of one open. `Registration` is the importer's own record of the mapping; the cache passes it to `close`.
template <class Registration>
struct imported {
  range covered;  ///< the range that was really opened, in the exporter's addresses; contains the range that `check`
                  ///< returned
  void* data;     ///< where `covered.begin` is in this process
  std::size_t bytes;          ///< bytes that count against the budget, at least `covered.size()`
  Registration registration;  ///< passed to `close`
};

/// Names the address range of segments, so that an importer maps them side by side: plain bytes, which may be sent to
/// peers in any way.
struct memory_window {
  std::uint64_t exporter = 0;  ///< random number of the exporter object
  std::uint64_t base = 0;      ///< first address in the exporter
  std::uint64_t size = 0;      ///< bytes, whole pages of the memory

  /// Returns the addresses in the exporter.
  [[nodiscard]] range where() const noexcept { return {base, base + size}; }
  friend bool operator==(const memory_window&, const memory_window&) noexcept = default;
};

/// Largest `Registration` that an entry can hold, in bytes.
inline constexpr std::size_t max_imported_registration_bytes = 32;

/// Largest `handle_type`, in bytes. Every entry keeps a copy of its handle, in a record of at most 1 KiB, and every hit
/// compares all of it. If a driver needs more to open memory, make the handle an id and let `open` fetch the rest.
inline constexpr std::size_t max_handle_bytes = 896;

/// A back end that opens remote memory by a handle and closes it again.
///
/// - `handle_type` is the token: all its bytes together identify one allocation for ever. Two allocations never have
///   equal handles, so a handle holds a serial or an id that is not reused. At most `max_handle_bytes`.
/// - `check` validates a handle without calling the driver and returns the allocation that the handle names.
/// - `open` returns `already_mapped` if the driver refuses because of a mapping that is open, and `out_of_resources` if
///   closing another mapping could help. Any other error is final. A failed open leaves nothing behind.
/// - `close` either closes the mapping or changes nothing.
/// - `allows_duplicates` says whether the driver opens a handle that it already has open.
///
/// The cache calls `open` and `close` on many threads at once, and holds no lock meanwhile.
template <class I>
concept importer = std::move_constructible<I> && std::is_trivially_copyable_v<typename I::handle_type> &&
                   std::has_unique_object_representations_v<typename I::handle_type> &&
                   (sizeof(typename I::handle_type) <= max_handle_bytes) &&
                   std::is_trivially_copyable_v<typename I::registration_type> &&
                   std::default_initializable<typename I::registration_type> &&
                   (sizeof(typename I::registration_type) <= max_imported_registration_bytes) &&
                   requires(I& importer, const I& constant, peer_id peer, const typename I::handle_type& handle,
                            const typename I::registration_type& registration) {
                     { I::name } -> std::convertible_to<const char*>;
                     { I::allows_duplicates } -> std::convertible_to<bool>;
                     { constant.check(handle) } noexcept -> std::same_as<result<range>>;
                     {
                       importer.open(peer, handle)
                     } noexcept -> std::same_as<result<imported<typename I::registration_type>>>;
                     { importer.close(registration) } noexcept -> std::same_as<result<void>>;
                   };

/// An importer whose `can_open` returns whether it could open a handle, or why not, without a trace in the exporter,
/// the driver or itself.
template <class I>
concept can_open_importer = importer<I> && requires(const I& importer, const typename I::handle_type& handle) {
  { importer.can_open(handle) } noexcept -> std::same_as<result<void>>;
};

/// An importer that reports the end of its exporters to the cache, which then closes their idle mappings.
template <class I>
concept end_telling_importer =
    importer<I> && requires(I& importer, std::function<void(peer_id, range, const typename I::handle_type&)> to) {
      importer.tell_ends(std::move(to));
    };

}  // namespace pinfold
