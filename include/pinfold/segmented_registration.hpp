// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One lease on registered memory that consists of several segments or allocations.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/segmented_lease.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pinfold {

/// A registrar that knows where segments end. `segments_of` returns the segments that the range touches, by address;
/// together they cover it.
template <class R>
concept segmenting_registrar = registrar<R> && requires(const R& constant, range memory) {
  { constant.segments_of(memory) } noexcept -> std::same_as<result<std::vector<range>>>;
};

/// Leases on the registrations of the segments under a range of this process's memory.
template <registrar R>
using segmented_registration = lease_of_segments<lease<R>>;

namespace detail {

/// Returns leases on the parts of `segments` that lie in the range, which they must cover. Throws `std::bad_alloc`.
template <registrar R>
[[nodiscard]] result<segmented_registration<R>> acquire_parts(cache<R>& on, const range& wanted,
                                                              std::span<const range> segments, access_flags need,
                                                              const acquire_options& how) {
  segmented_registration<R> made;
  segments_access::reserve(made, segments.size());
  auto at = wanted.begin;
  for (const auto& one : segments) {
    if (one.end <= at || at == wanted.end) continue;
    if (one.begin > at) break;
    const range where{at, std::min(one.end, wanted.end)};
    auto held = on.acquire(reinterpret_cast<void*>(where.begin), where.size(), need, how);
    if (!held) return tl::unexpected(held.error());
    segments_access::add(made, where, *std::move(held));
    at = where.end;
  }
  if (at < wanted.end) return fail(errc::invalid_range, "a part of the range has no segment");
  return made;
}

}  // namespace detail

/// Returns leases on the `bytes` bytes at `address`, cut where the given segments end: all or nothing. `segments` are
/// ordered by address and do not overlap; those elsewhere are ignored. A registration does not cross the end of a
/// segment, so when a segment is removed or replaced, only its registrations are stale.
///
/// Errors: `invalid_range` (empty, wraps around, or a part has no segment), `out_of_resources`, and those of
/// `cache::acquire`, of the first segment that fails. On an error the caller holds no lease, though the cache may keep
/// what it registered.
template <registrar R>
[[nodiscard]] result<segmented_registration<R>> acquire_segmented(cache<R>& on, void* address, std::size_t bytes,
                                                                  std::span<const range> segments,
                                                                  access_flags need = local_access,
                                                                  const acquire_options& how = {}) noexcept {
  const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  return detail::or_error("no memory for the list of segments", "no memory for the list of segments",
                          [&] { return detail::acquire_parts(on, *wanted, segments, need, how); });
}

/// As above, with the segments that the registrar finds. Also returns the errors of its `segments_of`, and `closed` if
/// the cache was moved from.
template <segmenting_registrar R>
[[nodiscard]] result<segmented_registration<R>> acquire_segmented(cache<R>& on, void* address, std::size_t bytes,
                                                                  access_flags need = local_access,
                                                                  const acquire_options& how = {}) noexcept {
  const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  const R* registrar = on.backend_or_null();
  if (registrar == nullptr) return fail(errc::closed, "the cache was moved from");
  const auto segments = registrar->segments_of(*wanted);
  if (!segments) return tl::unexpected(segments.error());
  return acquire_segmented(on, address, bytes, std::span<const range>(*segments), need, how);
}

}  // namespace pinfold
