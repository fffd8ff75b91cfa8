// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The requested memory. Nothing is mapped there, unless the regions are laid somewhere: no subject touches it, and
/// registering does nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace bench {

inline constexpr std::size_t region_bytes = std::size_t{64} << 10;

struct request {
  std::uintptr_t address;
  std::size_t bytes;
};
using requests = std::vector<request>;

/// The placement of regions: side by side on their own multiples, or as an allocator may place them, with unaligned
/// starts and gaps. The gaps are wider than a page, so that subjects that round out to pages see as many regions.
enum class layout : std::uint8_t { aligned, malloc_like };

[[nodiscard]] constexpr const char* name_of(layout of) noexcept {
  return of == layout::aligned ? "aligned" : "malloc-like";
}

/// `count` regions of 64 KiB, from `base` on.
class region_set {
 public:
  explicit region_set(std::size_t count, layout how = layout::aligned, std::uintptr_t base = nowhere) noexcept
      : base_(base),
        count_(count),
        layout_(how),
        stride_bits_(std::countr_zero(region_bytes) + (how == layout::aligned ? 0 : 1)) {}

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] request operator[](std::size_t index) const noexcept {
    return {base_ + (index << stride_bits_) + offset(index), region_bytes};
  }

  /// Returns the region that the address lies in.
  [[nodiscard]] std::size_t index_of(std::uintptr_t address) const noexcept {
    return (address - base_) >> stride_bits_;
  }

 private:
  static constexpr std::uintptr_t nowhere = std::uintptr_t{1} << 44;

  // 16-byte steps below half a region; the constant scatters them.
  [[nodiscard]] std::size_t offset(std::size_t index) const noexcept {
    if (layout_ == layout::aligned) return 0;
    return 16 + (static_cast<std::uint32_t>(index) * 2'654'435'761U >> 21) * 16;
  }

  std::uintptr_t base_;
  std::size_t count_;
  layout layout_;
  int stride_bits_;
};

/// The regions that a thread requests, and how much of each.
enum class pattern : std::uint8_t {
  same,      ///< all threads the same region
  distinct,  ///< each thread its own
  random,    ///< any region, whole
  interior,  ///< any region, a part of it
};

[[nodiscard]] constexpr const char* name_of(pattern of) noexcept {
  switch (of) {
    case pattern::same: return "same";
    case pattern::distinct: return "distinct";
    case pattern::random: return "random";
    case pattern::interior: return "interior";
  }
  return "unknown";
}

using generator = std::mt19937_64;

/// Returns some bytes inside a region.
[[nodiscard]] inline request part_of(request whole, generator& chance) {
  const auto begin = chance() % whole.bytes;
  const auto bytes = 1 + chance() % (whole.bytes - begin);
  return {whole.address + begin, bytes};
}

/// Returns a power of two of requests, too many for a branch predictor to learn, and enough to reach every region.
[[nodiscard]] inline requests requests_for(const region_set& regions, pattern how, unsigned thread, unsigned threads) {
  constexpr std::size_t fewest = std::size_t{1} << 16;
  generator chance(thread + 1);
  requests made(std::bit_ceil(std::max(fewest, 4 * regions.count())));
  for (auto& one : made) {
    switch (how) {
      case pattern::same: one = regions[0]; break;
      case pattern::distinct: one = regions[thread * (regions.count() / threads)]; break;
      case pattern::random: one = regions[chance() % regions.count()]; break;
      case pattern::interior: one = part_of(regions[chance() % regions.count()], chance); break;
    }
  }
  return made;
}

/// Returns every region once.
[[nodiscard]] inline requests each_once(const region_set& regions, bool shuffled) {
  requests made;
  made.reserve(regions.count());
  for (std::size_t index = 0; index < regions.count(); ++index) made.push_back(regions[index]);
  if (shuffled) std::ranges::shuffle(made, generator(regions.count()));
  return made;
}

}  // namespace bench
