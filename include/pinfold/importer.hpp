// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a back end must offer so that `import_cache` can cache it. `docs/registrars.md` is the porting page, and the
/// conformance suite in `tests/conformance` is what a new importer has to pass.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace pinfold {

/// What one open gave. `Mapping` is the importer's own record of it, handed back to `close`.
template <class Mapping>
struct imported {
  range covered;      ///< what was really opened, in the exporter's addresses; contains what `check` returned
  void* data;         ///< where `covered.begin` is in this process
  std::size_t bytes;  ///< what counts against a budget, at least `covered.size()`
  Mapping mapping;
};

/// Largest `Mapping` that an entry can hold, in bytes.
inline constexpr std::size_t max_mapping_bytes = 32;

/// Largest `handle_type`, in bytes. Every entry keeps a copy of its handle, in a record of at most 1 KiB, and every hit
/// compares all of it. Where a driver needs more to open memory, the handle is an id, and `open` fetches the rest.
inline constexpr std::size_t max_handle_bytes = 896;

/// An importer opens remote memory by a handle and closes it again.
///
/// - `handle_type` is the token: its bytes, all of them, identify one allocation for ever. Two allocations never have
///   equal handles, so it holds a serial or an id that is not reused. At most `max_handle_bytes`.
/// - `check` validates a handle without calling the driver and returns the allocation that it stands for.
/// - `open` says `already_mapped` when the driver refuses because of something that is open, `out_of_resources` when
///   closing something else could help; any other error is final. A failed open leaves nothing behind.
/// - `close` either closes or leaves all as it was.
/// - `allows_duplicates`: whether the driver opens a handle that it already has open.
///
/// `open` and `close` are called on many threads at once, without a lock of the cache.
template <class I>
concept importer =
    std::move_constructible<I> && std::is_trivially_copyable_v<typename I::handle_type> &&
    std::has_unique_object_representations_v<typename I::handle_type> &&
    (sizeof(typename I::handle_type) <= max_handle_bytes) && std::is_trivially_copyable_v<typename I::mapping_type> &&
    std::default_initializable<typename I::mapping_type> && (sizeof(typename I::mapping_type) <= max_mapping_bytes) &&
    requires(I& importer, const I& constant, peer_id peer, const typename I::handle_type& handle,
             const typename I::mapping_type& mapping) {
      { I::name } -> std::convertible_to<const char*>;
      { I::allows_duplicates } -> std::convertible_to<bool>;
      { constant.check(handle) } noexcept -> std::same_as<result<range>>;
      { importer.open(peer, handle) } noexcept -> std::same_as<result<imported<typename I::mapping_type>>>;
      { importer.close(mapping) } noexcept -> std::same_as<result<void>>;
    };

}  // namespace pinfold
