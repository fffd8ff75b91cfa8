// SPDX-License-Identifier: BSD-3-Clause
#include "pools/block_map.hpp"

#include "os/check.hpp"

#include <new>

namespace pinfold::pools {

block_map::block_map(std::uint32_t granules)
    : count_(granules), granules_(static_cast<granule*>(std::calloc(granules, sizeof(granule)))) {
  if (granules_ == nullptr) throw std::bad_alloc();
  first_.fill(nowhere);
  add_free(0, granules);
}

void block_map::mark(std::uint32_t at, std::uint32_t length, state now) noexcept {
  PINFOLD_ASSERT(at < count_ && length <= count_, "a block lies in the map");
  granules_[at].length = length & 0x3fffffffU;
  granules_[at].is = static_cast<std::uint32_t>(now) & 3U;
}

void block_map::add_free(std::uint32_t at, std::uint32_t length) noexcept {
  PINFOLD_ASSERT(length > 0 && at + length <= count_, "a free block has a granule, and lies in the map");
  mark(at, length, state::free);
  mark(at + length - 1, length, state::free);
  const unsigned in = class_of(length);
  granules_[at].previous = nowhere;
  granules_[at].next = first_[in];
  if (first_[in] != nowhere) granules_[first_[in]].previous = at;
  first_[in] = at;
  filled_.insert(in);
}

std::uint32_t block_map::remove_free(std::uint32_t at) noexcept {
  PINFOLD_ASSERT(is(at, state::free), "only a free block leaves the lists of free blocks");
  const auto [length, is, next, previous] = granules_[at];
  PINFOLD_ASSERT(at + length <= count_ && granules_[at + length - 1].length == length,
                 "both ends of a free block have its length");
  PINFOLD_ASSERT((previous == nowhere) == (first_[class_of(length)] == at),
                 "only the first block of a class has none before it");
  const unsigned in = class_of(length);
  if (next != nowhere) granules_[next].previous = previous;
  (previous == nowhere ? first_[in] : granules_[previous].next) = next;
  if (first_[in] == nowhere) filled_.erase(in);
  mark(at, 0, state::none);
  mark(at + length - 1, 0, state::none);
  return length;
}

// Frees a block that is neither free nor marked, and merges it with its free neighbours.
void block_map::merge(std::uint32_t at, std::uint32_t length) noexcept {
  PINFOLD_ASSERT(length > 0 && is(at, state::none), "a block is merged once, when it is free");
  if (at > 0 && is(at - 1, state::free)) {
    const std::uint32_t before = granules_[at - 1].length;
    at -= before;
    length += remove_free(at);
  }
  if (is(at + length, state::free)) length += remove_free(at + length);
  add_free(at, length);
}

void block_map::carve(std::uint32_t block, std::uint32_t at, std::uint32_t length) noexcept {
  PINFOLD_ASSERT(block <= at && at + length <= block + granules_[block].length,
                 "what is carved lies in the free block");
  const std::uint32_t whole = remove_free(block);
  if (at > block) add_free(block, at - block);
  const std::uint32_t behind = block + whole - (at + length);
  if (behind > 0) add_free(at + length, behind);
  mark(at, length, state::used);
}

std::optional<std::uint32_t> block_map::take(std::uint32_t length, std::uint32_t alignment, effort how) noexcept {
  PINFOLD_ASSERT(length > 0 && std::has_single_bit(alignment), "the caller rounds the length and the alignment");
  constexpr int few = 8;
  int examined = 0;
  const unsigned least = how == effort::sure ? sure_class(length, alignment) : class_of(length);
  for (unsigned in = filled_.first_from(least); in < class_count; in = filled_.first_from(in + 1)) {
    for (std::uint32_t block = first_[in]; block != nowhere; block = granules_[block].next) {
      const std::uint32_t at = (block + alignment - 1) & ~(alignment - 1);
      if (at + length <= block + granules_[block].length) {
        carve(block, at, length);
        return at;
      }
      if (how != effort::all && ++examined == few) return std::nullopt;
    }
  }
  return std::nullopt;
}

std::uint32_t block_map::allocated(std::uint32_t at) const noexcept {
  return is(at, state::used) ? granules_[at].length : 0;
}

void block_map::free(std::uint32_t at) noexcept {
  PINFOLD_ASSERT(is(at, state::used) || is(at, state::resting), "only an allocation is freed, and once");
  const std::uint32_t length = granules_[at].length;
  mark(at, 0, state::none);
  merge(at, length);
}

void block_map::rest(std::uint32_t at) noexcept {
  PINFOLD_ASSERT(is(at, state::used), "an allocation ends once");
  mark(at, granules_[at].length, state::resting);
  granules_[at].next = resting_;
  resting_ = at;
}

void block_map::wake() noexcept {
  while (resting_ != nowhere) {
    const std::uint32_t at = resting_;
    PINFOLD_ASSERT(is(at, state::resting), "an entry of the list of resting blocks rests");
    resting_ = granules_[at].next;
    free(at);
  }
}

bool block_map::resize(std::uint32_t at, std::uint32_t length) noexcept {
  PINFOLD_ASSERT(is(at, state::used) && length > 0, "an allocation keeps a granule");
  const std::uint32_t old = granules_[at].length;
  if (length > old) {
    const std::uint32_t behind = at + old;
    if (!is(behind, state::free) || old + granules_[behind].length < length) return false;
    const std::uint32_t rest_of_it = old + remove_free(behind) - length;
    if (rest_of_it > 0) add_free(at + length, rest_of_it);
  }
  mark(at, length, state::used);
  if (length < old) merge(at + length, old - length);
  return true;
}

}  // namespace pinfold::pools
