// SPDX-License-Identifier: BSD-3-Clause
#include "pools/slab_pool.hpp"

#include "os/check.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pinfold::detail {

namespace {

using pools::block_map;

constexpr std::size_t least_granule = 64;         // a cache line: a device's writes share no line with other data
constexpr std::size_t most_granules = 1U << 20U;  // in a slab: bounds the size of its map

pool_options sensible(pool_options options) noexcept {
  constexpr std::size_t most = std::size_t{1} << 40U;
  options.slab_bytes = pools::rounded(std::clamp<std::size_t>(options.slab_bytes, 1, most), pools::small_page());
  return options;
}

// Returns the length in granules of the slab, rounded up to a class; 0 if it exceeds the slab.
std::uint32_t length_in(const slab& in, std::size_t bytes) noexcept {
  if (bytes > in.mapping.memory.size()) return 0;
  if (in.dedicated) return 1;
  const auto exact = (std::max<std::size_t>(bytes, 1) + in.granule - 1) / in.granule;
  return pools::rounded_up(static_cast<std::uint32_t>(exact));
}

}  // namespace

slab_pool::slab_pool(slab_driver driver, pool_options options, bool synchronized)
    : driver_(std::move(driver)),
      options_(sensible(std::move(options))),
      granule_(std::max(least_granule, std::bit_ceil(options_.slab_bytes / most_granules))),
      mutex_(synchronized) {}

result<slab_pool::wish> slab_pool::understood(std::size_t bytes, std::size_t alignment) const noexcept {
  if (!std::has_single_bit(alignment)) return fail(errc::invalid_argument, "the alignment is not a power of 2");
  if (alignment > std::clamp(std::bit_floor(options_.slab_bytes), pools::small_page(), pools::huge_page))
    return fail(errc::invalid_argument, "the alignment exceeds that of a slab");
  if (bytes > SIZE_MAX / 4) return fail(errc::out_of_resources, "the size exceeds a quarter of the address space");
  wish what{.bytes = bytes, .alignment = alignment, .large = bytes > options_.slab_bytes / 2};
  if (what.large) return what;
  const auto exact = (std::max<std::size_t>(bytes, 1) + granule_ - 1) / granule_;
  what.granules = pools::rounded_up(static_cast<std::uint32_t>(exact));
  what.alignment_granules = static_cast<std::uint32_t>(std::max<std::size_t>(alignment / granule_, 1));
  return what;
}

result<slab_grant> slab_pool::allocate(std::size_t bytes, std::size_t alignment) noexcept {
  const auto what = understood(bytes, alignment);
  if (!what) return tl::unexpected(what.error());
  lock guard(mutex_);
  std::uint32_t at = 0;
  if (slab* found = take(*what, at)) return grant(*found, at, guard);
  const auto made = grow(*what, guard);
  if (!made) return tl::unexpected(made.error());
  return grant(**made, 0, guard);
}

// Tries a block of exactly this size first, then one that is certain to hold an aligned block, then all.
slab* slab_pool::take(const wish& what, std::uint32_t& at) noexcept {
  if (what.large) return take_large(what);
  const auto try_in = [&](slab* in, block_map::effort how) {
    const auto got = in == nullptr ? std::nullopt : in->blocks.take(what.granules, what.alignment_granules, how);
    at = got.value_or(0);
    return got.has_value();
  };
  const unsigned least = pools::class_of(what.granules);
  slab* in = free_.first_from(least);
  if (try_in(in, block_map::effort::little)) return in;
  in = free_.first_from(block_map::sure_class(what.granules, what.alignment_granules));
  if (try_in(in, block_map::effort::sure)) return in;
  in = free_.first_from(least);
  while (in != nullptr && !try_in(in, block_map::effort::all)) in = free_.after(*in);
  return in;
}

slab* slab_pool::take_large(const wish& what) noexcept {
  for (const place& one : table_) {
    slab& in = *one.is;
    const std::size_t size = in.mapping.memory.size();
    const bool fits = what.bytes <= size && size / 2 <= what.bytes && one.begin % what.alignment == 0;
    if (in.dedicated && fits && in.blocks.take(1, 1, block_map::effort::little)) return &in;
  }
  return nullptr;
}

slab_grant slab_pool::grant(slab& from, std::uint32_t at, lock& guard) noexcept {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the lock");
  const std::size_t begin = at * from.granule;
  const std::size_t bytes = from.blocks.allocated(at) * from.granule;
  from.used += bytes;
  PINFOLD_ASSERT(bytes > 0 && from.used <= from.mapping.memory.size(), "a slab hands out no more than it has");
  ++from.allocations;
  free_.place(from);
  const slab_grant made{from.at(begin), &from.object};
  hand_out(from, begin, begin + bytes, guard);
  return made;
}

// From here on the bytes belong to the caller, so clearing them needs no lock.
void slab_pool::hand_out(slab& in, std::size_t begin, std::size_t end, lock& guard) const noexcept {
  PINFOLD_ASSERT(guard.owns_lock() && end <= in.mapping.memory.size(),
                 "the caller holds the lock, and the bytes lie in the slab");
  const std::size_t dirty = std::min(end, in.touched);
  in.touched = std::max(in.touched, end);
  std::byte* const data = in.at(begin);
  guard.unlock();
  if (options_.clear && dirty > begin) std::memset(data, 0, dirty - begin);
}

// Returns the slab of an allocation of that size, and its granule in `at`; null if there is none.
slab* slab_pool::owner_of(const void* data, std::size_t bytes, std::uint32_t& at) const noexcept {
  slab* const in = around(data);
  if (in == nullptr) return nullptr;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) - in->mapping.memory.begin;
  at = static_cast<std::uint32_t>(offset / in->granule);
  const std::uint32_t length = in->blocks.allocated(at);
  const bool right = offset % in->granule == 0 && length != 0 && length == length_in(*in, bytes);
  return right ? in : nullptr;
}

result<void> slab_pool::deallocate(void* data, std::size_t bytes) noexcept {
  lock guard(mutex_);
  std::uint32_t at = 0;
  slab* const in = owner_of(data, bytes, at);
  if (in == nullptr) {
    ++misuses_;
    return fail(errc::invalid_argument, "the pool has no allocation of this size at this address");
  }
  PINFOLD_ASSERT(in->allocations > 0, "the allocations of a slab are counted");
  --in->allocations;
  const std::size_t freed = in->blocks.allocated(at) * in->granule;
  if (in->leases > 0) {
    in->blocks.rest(at);
    in->resting += freed;
    return {};
  }
  PINFOLD_ASSERT(in->used >= freed, "a slab gets back no more than it handed out");
  in->used -= freed;
  in->blocks.free(at);
  free_.place(*in);
  return {};
}

bool slab_pool::resize(void* data, std::size_t bytes, std::size_t wanted) noexcept {
  lock guard(mutex_);
  std::uint32_t at = 0;
  slab* const in = owner_of(data, bytes, at);
  if (in == nullptr) return false;
  const std::uint32_t old = in->blocks.allocated(at);
  const std::uint32_t length = length_in(*in, wanted);
  if (length == old) return true;
  // Under a lease the cut-off end would have to rest, so it stays allocated instead.
  if (length == 0 || (length < old && in->leases > 0) || !in->blocks.resize(at, length)) return false;
  in->used = in->used - old * in->granule + length * in->granule;
  free_.place(*in);
  if (length > old) hand_out(*in, (at + old) * in->granule, (at + length) * in->granule, guard);
  return true;
}

// Returns a copy, so that a caller with memory that is not allocated does not prevent another thread from giving its
// slab back.
std::optional<registration> slab_pool::registration_of(const void* data) const noexcept {
  lock guard(mutex_);
  const slab* const in = around(data);
  return in == nullptr ? std::nullopt : std::optional(in->object);
}

slab* slab_pool::lease(const void* data) noexcept {
  lock guard(mutex_);
  slab* const in = around(data);
  if (in != nullptr) ++in->leases;
  return in;
}

bool slab_pool::release(slab& leased) noexcept {
  lock guard(mutex_);
  PINFOLD_ASSERT(leased.leases > 0, "the leases of a slab are counted");
  if (--leased.leases > 0) return false;
  leased.blocks.wake();
  PINFOLD_ASSERT(leased.resting <= leased.used, "what rests counts as used");
  leased.used -= std::exchange(leased.resting, 0);
  free_.place(leased);
  if (!ended_) return false;
  give_back(guard);
  return lingering_ != nullptr && !std::exchange(stays_, true);
}

}  // namespace pinfold::detail
