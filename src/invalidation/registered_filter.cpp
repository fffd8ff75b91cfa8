// SPDX-License-Identifier: BSD-3-Clause
#include "invalidation/registered_filter.hpp"

#include "os/check.hpp"

#include <algorithm>

namespace pinfold::invalidation {

namespace {

/// Calls `each(unit, part)` for each unit of 2^`shift` bytes that the range touches; `part` is the range's part of the
/// unit.
template <class F>
void for_each_unit(const range& memory, unsigned shift, F&& each) noexcept {
  for (auto at = memory.begin; at < memory.end;) {
    const auto unit = at >> shift;
    const auto end = std::min(memory.end, (unit + 1) << shift);
    each(unit, range{at, end});
    at = end;
  }
}

bool is_whole(const range& unit, unsigned shift) noexcept { return unit.size() == std::uintptr_t{1} << shift; }

bool is_within(const range& memory, unsigned shift) noexcept {
  PINFOLD_ASSERT(memory.begin < memory.end, "an empty range lies in no unit");
  return memory.begin >> shift == (memory.end - 1) >> shift;
}

// Selects the counts of the range's pages in its granule.
std::uint64_t pages_of(const range& in_granule) noexcept {
  constexpr unsigned page_shift = 12;
  PINFOLD_ASSERT((in_granule.begin ^ (in_granule.end - 1)) >> (page_shift + 4) == 0,
                 "the pages are those of one granule");
  const auto first = in_granule.begin >> page_shift & 15U;
  const auto last = (in_granule.end - 1) >> page_shift & 15U;
  return ~std::uint64_t{0} << 4 * first & ~std::uint64_t{0} >> 4 * (15 - last);
}

}  // namespace

registered_filter::part* registered_filter::part_of_granule(const range& memory) const noexcept {
  const auto number = memory.begin >> part_shift;
  if (!is_within(memory, granule_shift) || number >= part_count) return nullptr;
  return parts_[number].in.load(std::memory_order_acquire);
}

template <class F>
void registered_filter::for_each_count_of_pages(part& in, const range& in_granule, F&& each) noexcept {
  const auto number = (in_granule.begin >> granule_shift) % in.granules.size();
  each(in.granules[number], partly);
  each(in.pages[number], pages_of(in_granule));
}

template <class F>
void registered_filter::for_each_count_in(part& in, const range& memory, F&& each) noexcept {
  for_each_unit(memory, chunk_shift, [&](std::uintptr_t chunk, const range& in_chunk) {
    if (is_whole(in_chunk, chunk_shift)) return each(in.chunks[chunk % in.chunks.size()], whole);
    for_each_unit(in_chunk, granule_shift, [&](std::uintptr_t granule, const range& in_granule) {
      const auto number = granule % in.granules.size();
      if (is_whole(in_granule, granule_shift)) return each(in.granules[number], whole);
      for_each_count_of_pages(in, in_granule, each);
    });
  });
}

template <class F>
void registered_filter::for_each_count(const range& memory, F&& each) noexcept {
  const range counted{memory.begin, std::min(memory.end, std::uintptr_t{1} << address_bits)};
  for_each_unit(counted, part_shift, [&](std::uintptr_t number, const range& in_part) {
    PINFOLD_ASSERT(number < part_count, "every address that is counted lies in a part");
    if (is_whole(in_part, part_shift)) return each(parts_[number].whole, whole);
    part* const in = parts_[number].in.load(std::memory_order_acquire);
    if (in != nullptr) for_each_count_in(*in, in_part, each);
  });
}

void registered_filter::add_by_units(const range& memory) noexcept {
  if (memory.empty()) return;
  if ((memory.end - 1) >> address_bits != 0) beyond_.store(true, std::memory_order_seq_cst);
  constexpr auto each = [](auto& counts, auto which) { counts.add(which); };
  if (part* const in = part_of_granule(memory)) return for_each_count_of_pages(*in, memory, each);
  for_each_count(memory, each);
}

void registered_filter::remove_by_units(const range& memory) noexcept {
  if (memory.empty()) return;
  constexpr auto each = [](auto& counts, auto which) { counts.remove(which); };
  if (part* const in = part_of_granule(memory)) return for_each_count_of_pages(*in, memory, each);
  for_each_count(memory, each);
}

bool registered_filter::touches_in(const part& in, const range& memory) noexcept {
  for (auto at = memory.begin; at < memory.end;) {
    if (in.chunks[(at >> chunk_shift) % in.chunks.size()].any(whole)) return true;
    const auto chunk_end = std::min(memory.end, ((at >> chunk_shift) + 1) << chunk_shift);
    while (at < chunk_end) {
      const auto granule = at >> granule_shift;
      const range in_granule{at, std::min(chunk_end, (granule + 1) << granule_shift)};
      const auto& counts = in.granules[granule % in.granules.size()];
      at = in_granule.end;
      if (!counts.any(whole | partly)) continue;
      if (counts.any(whole) || is_whole(in_granule, granule_shift)) return true;
      if (in.pages[granule % in.pages.size()].any(pages_of(in_granule))) return true;
    }
  }
  return false;
}

bool registered_filter::touches(const range& memory) const noexcept {
  if (memory.empty()) return false;
  if ((memory.end - 1) >> address_bits != 0 && beyond_.load(std::memory_order_relaxed)) return true;
  const auto end = std::min(memory.end, std::uintptr_t{1} << address_bits);
  for (auto at = memory.begin; at < end;) {
    const auto number = at >> part_shift;
    PINFOLD_ASSERT(number < part_count, "every address that is looked up lies in a part");
    const range in_part{at, std::min(end, (number + 1) << part_shift)};
    at = in_part.end;
    if (parts_[number].whole.any(whole)) return true;
    const part* const in = parts_[number].in.load(std::memory_order_acquire);
    if (in != nullptr && touches_in(*in, in_part)) return true;
  }
  return false;
}

}  // namespace pinfold::invalidation
