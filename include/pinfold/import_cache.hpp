// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of remote memory, opened by handle: CUDA IPC, or memfd where there is no GPU.
#pragma once

#include <pinfold/cache_base.hpp>
#include <pinfold/detail/import_driver.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/detail/segments_under.hpp>
#include <pinfold/import_lease.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/options.hpp>
#include <pinfold/segmented_lease.hpp>
#include <pinfold/statistics.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pinfold {

/// A cache that opens remote memory once, reuses the mapping, and never hands out a mapping whose handle was replaced.
///
/// One cache serves many peers. Peers never see each other's entries, and the budgets apply to all peers together.
/// Every member may be called on any thread at any time, except that the destructor and a move must not run at the same
/// time as another member. The cache holds no lock while the importer works, so opens of different handles run in
/// parallel. A moved-from cache returns `closed` and finds nothing.
template <importer I>
class import_cache : public cache_base<I> {
 public:
  using handle_type = typename I::handle_type;  ///< names a peer's memory
  using lease = import_lease<I>;                ///< what `acquire` returns

  /// Takes over the importer. Throws only `std::bad_alloc`, or `std::system_error` when the reaper's thread cannot
  /// start.
  explicit import_cache(I importer, cache_options options = {})
      : cache_base<I>(std::move(importer), std::move(options), detail::import_driver<I>::table) {}

  /// Returns a lease on the `bytes` bytes at `address` in the peer's address space, inside the allocation that `handle`
  /// names. A hit costs a look-up and a comparison of the whole handle; a miss opens the handle (R1–R10).
  ///
  /// Errors: `invalid_range`, `invalid_handle`, `over_budget`, `larger_than_budget`, `out_of_resources`,
  /// `in_use_conflict`, `timed_out`, `closed`, and what the importer's `open` returns. Bad input changes nothing.
  [[nodiscard, gnu::always_inline]] result<lease> acquire(peer_id peer, const handle_type& handle,
                                                          std::uintptr_t address, std::size_t bytes) noexcept {
    if (const auto end = address + bytes; address < end) [[likely]] {
      if (const auto hit = try_hint<detail::asked_by::acquire>(peer, handle, address, end); hit.held != 0) [[likely]]
        return lease(hit);
      if (const auto hit = detail::look_up(this->inside(), peer, {address, end}, &handle); hit.held != 0)
        return lease(hit);
    }
    // Build the lease here, so that only this function needs the address of the caller's lease: on a hit the lease
    // stays in registers.
    const auto granted = acquire_slowly(peer, handle, address, bytes);
    if (!granted) return tl::unexpected(granted.error());
    return lease(*granted);
  }

  /// Returns a lease as `acquire` does, but only on memory that is already open: never calls the importer, never waits
  /// (R48).
  [[nodiscard]] std::optional<lease> find(peer_id peer, const handle_type& handle, std::uintptr_t address,
                                          std::size_t bytes) noexcept {
    auto wanted = range::of(address, bytes);
    if (!wanted) return std::nullopt;
    if (const auto hit = try_hint<detail::asked_by::find>(peer, handle, address, wanted->end); hit.held != 0) [[likely]]
      return lease(hit);
    auto granted = detail::find(this->inside(), {peer, *wanted, &handle});
    if (granted.held == 0) return std::nullopt;
    return lease(granted);
  }

  /// Returns leases on all segments under the `bytes` bytes at `address` in the peer's address space: one for each of
  /// `handles` that the range touches, all or nothing. The handles may be in any order; those elsewhere are ignored.
  /// Only segments that are not open are opened: those that did not change since the last call are hits.
  ///
  /// Errors: `invalid_range` (empty, wraps around, or a part has no handle), `invalid_handle` (also handles that
  /// overlap), `out_of_resources`, and those of `acquire`, of the first segment that fails. On an error the caller
  /// holds no lease, though the cache may keep what it opened, as after any release.
  [[nodiscard]] result<segmented_lease<I>> acquire_segments(peer_id peer, std::span<const handle_type> handles,
                                                            std::uintptr_t address, std::size_t bytes) noexcept {
    return detail::or_error("no memory for the list of segments", "no memory for the list of segments",
                            [&] { return acquire_each(peer, handles, address, bytes); });
  }

  /// Returns whether the handle's memory could be opened now, or why not, before anything is tried: opens nothing and
  /// changes nothing in the cache. Asks the importer, even if the handle is open already. Errors: as the importer's
  /// `can_open`; `closed` if the cache was moved from.
  [[nodiscard]] result<void> can_open(const handle_type& handle) const noexcept
    requires can_open_importer<I>
  {
    const I* importer = this->backend_or_null();
    if (importer == nullptr) return fail(errc::closed, "the cache was moved from");
    return importer->can_open(handle);
  }

  /// Invalidates the entries that touch the peer's memory in `gone`: no later acquire returns them. Leases on them stay
  /// usable. Only marks; the closes come later (R36).
  void invalidate(peer_id peer, range gone) noexcept { detail::invalidate(this->inside(), peer, gone); }

  /// Drops a peer that has ended: marks all its entries stale, and closes the idle ones. The last release closes a
  /// leased entry. Returns the error of the first close that failed; that entry is then in quarantine.
  result<void> drop_peer(peer_id peer) noexcept { return detail::drop_peer(this->inside(), peer); }

 private:
  /// Returns a pin on a record that this thread hit recently; empty if none matches.
  template <detail::asked_by Who>
  [[nodiscard, gnu::always_inline]] detail::grant try_hint(peer_id peer, const handle_type& handle,
                                                           std::uintptr_t address, std::uintptr_t end) const noexcept {
    detail::grant got;
    const auto key = this->hits().key(peer, address);
    got.held = detail::hinted_hit<Who>(this->hits(), key, address, end, access_flags::none,
                                       [&](const detail::record& one) __attribute__((always_inline)) {
                                         if (!is_for(one, peer, handle)) return false;
                                         got.data = detail::local_address(one, address);
                                         return true;
                                       });
    return got;
  }

  // Some compilers call memcmp(3) for 64 bytes, or compare them in many steps.
  [[gnu::always_inline]] static bool same(const std::byte* token, const handle_type& handle) noexcept {
    if constexpr (sizeof handle % 16 != 0) {
      return std::memcmp(token, &handle, sizeof handle) == 0;
    } else {
      using two_words = std::uint64_t __attribute__((vector_size(16)));
      two_words differ{};
#pragma GCC unroll 8
      for (std::size_t at = 0; at < sizeof handle; at += 16) {
        two_words one;
        two_words other;
        std::memcpy(&one, token + at, 16);
        std::memcpy(&other, reinterpret_cast<const std::byte*>(&handle) + at, 16);
        differ |= one ^ other;
      }
      return (differ[0] | differ[1]) == 0;
    }
  }

  [[gnu::always_inline]] static bool is_for(const detail::record& one, peer_id peer,
                                            const handle_type& handle) noexcept {
    constexpr auto offset = detail::token_offset(detail::imported_object_offset, sizeof(typename I::registration_type));
    const auto* token = reinterpret_cast<const std::byte*>(&one) + offset;
    return detail::imported_part_of(one).peer == peer && same(token, handle);
  }

  // Returns the segments that the range touches, by address, which cover all of it. Throws std::bad_alloc.
  [[nodiscard]] result<std::vector<detail::named_segment>> segments_under(const range& wanted,
                                                                          std::span<const handle_type> handles) const {
    const I* importer = this->backend_or_null();
    if (importer == nullptr) return fail(errc::closed, "the cache was moved from");
    std::vector<detail::named_segment> all;
    for (const auto& one : handles) {
      const auto where = importer->check(one);
      if (!where) return tl::unexpected(where.error());
      if (where->overlaps(wanted)) all.push_back({*where, &one});
    }
    if (auto covered = detail::sort_to_cover(all, wanted); !covered) return tl::unexpected(covered.error());
    return all;
  }

  // Throws std::bad_alloc.
  [[nodiscard]] result<segmented_lease<I>> acquire_each(peer_id peer, std::span<const handle_type> handles,
                                                        std::uintptr_t address, std::size_t bytes) {
    const auto wanted = range::of(address, bytes);
    if (!wanted) return tl::unexpected(wanted.error());
    const auto all = segments_under(*wanted, handles);
    if (!all) return tl::unexpected(all.error());
    segmented_lease<I> made;
    detail::segments_access::reserve(made, all->size());
    for (const auto& one : *all) {
      const range where = one.part_of(*wanted);
      auto held = acquire(peer, *static_cast<const handle_type*>(one.handle), where.begin, where.size());
      if (!held) return tl::unexpected(held.error());
      detail::segments_access::add(made, where, *std::move(held));
    }
    return made;
  }

  [[nodiscard, gnu::noinline]] result<detail::grant> acquire_slowly(peer_id peer, const handle_type& handle,
                                                                    std::uintptr_t address,
                                                                    std::size_t bytes) noexcept {
    auto wanted = range::of(address, bytes);
    if (!wanted) return tl::unexpected(wanted.error());
    return detail::acquire(this->inside(), {peer, *wanted, &handle});
  }
};

}  // namespace pinfold
