// SPDX-License-Identifier: BSD-3-Clause
#include "pools/arena.hpp"

#include "pools/sealed_pages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <unistd.h>

namespace pinfold {

void sealed_arena::set_limit(std::size_t bytes) noexcept { pools::arena::of_this_process().set_limit(bytes); }
sealed_arena::usage_info sealed_arena::usage() noexcept { return pools::arena::of_this_process().usage(); }

namespace pools {

// Never destroyed: pools of static life give back to it.
arena& arena::of_this_process() noexcept {
  alignas(arena) static std::array<std::byte, sizeof(arena)> place;
  static arena& only = *new (place.data()) arena();
  return only;
}

// A child has none of its parent's pieces: they are not inherited.
void arena::forget_the_parents() noexcept {
  if (process_ == ::getpid()) return;
  process_ = ::getpid();
  pieces_.clear();
  bytes_ = reserved_ = 0;
}

arena::piece* arena::idle_piece(std::size_t bytes, page_kind wanted) noexcept {
  for (piece& one : pieces_) {
    const std::size_t size = one.made.memory.size();
    const bool suits = wanted == page_kind::best || wanted == one.made.pages;
    if (one.idle && suits && size == bytes_as(bytes, one.made.pages)) return &one;
  }
  return nullptr;
}

result<mapping> arena::take(std::size_t bytes, page_kind wanted) noexcept try {
  std::unique_lock lock(mutex_);
  forget_the_parents();
  if (piece* found = idle_piece(bytes, wanted)) {
    found->idle = false;
    return found->made;
  }
  const std::size_t counted = rounded(bytes, bytes < huge_page ? small_page() : huge_page);
  const std::size_t room = limit_ > bytes_ ? limit_ - bytes_ : 0;
  if (counted > room) return fail(errc::over_budget, "the limit of sealed_arena is reached");
  pieces_.reserve(pieces_.size() + reserved_ + 1);
  ++reserved_;
  bytes_ += counted;
  lock.unlock();
  auto made = sealed_mapper(bytes).map(wanted);
  lock.lock();
  --reserved_;
  bytes_ -= counted - (made ? made->memory.size() : 0);
  if (made) pieces_.push_back({*made, false});
  if (made) pieces_.back().made.used_before = true;  // by the time it is taken again
  return made;
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory to remember a sealed mapping with");
}

void arena::give_back(const mapping& unused) noexcept {
  std::lock_guard lock(mutex_);
  forget_the_parents();
  const auto found =
      std::ranges::find_if(pieces_, [&](const piece& one) { return one.made.memory.begin == unused.memory.begin; });
  if (found != pieces_.end()) found->idle = true;
}

void arena::set_limit(std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

sealed_arena::usage_info arena::usage() noexcept {
  std::lock_guard lock(mutex_);
  forget_the_parents();
  sealed_arena::usage_info seen{.limit = limit_, .bytes = bytes_, .idle = 0};
  for (const piece& one : pieces_) seen.idle += one.idle ? one.made.memory.size() : 0;
  return seen;
}

}  // namespace pools

}  // namespace pinfold
