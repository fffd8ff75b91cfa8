// SPDX-License-Identifier: BSD-3-Clause
#include "pools/arena.hpp"

#include "os/check.hpp"
#include "os/this_process.hpp"
#include "pools/sealed_pages.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace pinfold {

void sealed_arena::set_limit(std::size_t bytes) noexcept {
  if (auto* const here = pools::arena::of_this_process()) here->set_limit(bytes);
}

sealed_arena::usage_info sealed_arena::usage() noexcept {
  auto* const here = pools::arena::of_this_process();
  return here == nullptr ? usage_info{} : here->usage();
}

namespace pools {

// Never destroyed, because pools of static life give mappings back to it. A child does not inherit its parent's pieces,
// and may inherit a mutex that no thread of the child unlocks, so it gets an arena of its own.
arena* arena::of_this_process() noexcept {
  static constinit std::atomic<arena*> current{nullptr};
  arena* found = current.load(std::memory_order_acquire);
  const auto process = os::this_process();
  if (found != nullptr && found->process_ == process) return found;
  std::unique_ptr<arena> fresh(new (std::nothrow) arena(process, found));
  if (!fresh) return nullptr;
  return current.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel) ? fresh.release() : found;
}

arena::arena(std::uint64_t process, arena* parents) noexcept
    : limit_(parents == nullptr ? sealed_arena::default_limit : parents->limit_.load(std::memory_order_seq_cst)),
      process_(process),
      parents_(parents) {}

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
  if (piece* found = idle_piece(bytes, wanted)) {
    found->idle = false;
    return found->made;
  }
  const std::size_t counted = rounded(bytes, bytes < huge_page ? small_page() : huge_page);
  const std::size_t limit = limit_;
  const std::size_t room = limit > bytes_ ? limit - bytes_ : 0;
  if (counted > room) return fail(errc::over_budget, "the limit of sealed_arena is reached");
  pieces_.reserve(pieces_.size() + reserved_ + 1);
  ++reserved_;
  bytes_ += counted;
  lock.unlock();
  auto made = sealed_mapper(bytes).map(wanted);
  lock.lock();
  PINFOLD_ASSERT(reserved_ > 0 && pieces_.size() < pieces_.capacity(), "the place of the mapping is reserved");
  PINFOLD_ASSERT(bytes_ >= counted && (!made || made->memory.size() <= counted),
                 "a mapping has no more bytes than were counted");
  --reserved_;
  bytes_ -= counted - (made ? made->memory.size() : 0);
  if (made) pieces_.push_back({*made, false});
  if (made) pieces_.back().made.used_before = true;  // from the next `take` on
  return made;
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for the record of a sealed mapping");
}

void arena::give_back(const mapping& unused) noexcept {
  std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(pieces_, [&](const piece& one) { return one.made.memory.begin == unused.memory.begin; });
  PINFOLD_ASSERT(found == pieces_.end() || !found->idle, "a mapping is given back once");
  if (found != pieces_.end()) found->idle = true;
}

void arena::set_limit(std::size_t bytes) noexcept { limit_.store(bytes, std::memory_order_seq_cst); }

sealed_arena::usage_info arena::usage() noexcept {
  std::lock_guard lock(mutex_);
  sealed_arena::usage_info seen{.limit = limit_, .bytes = bytes_, .idle = 0};
  for (const piece& one : pieces_) seen.idle += one.idle ? one.made.memory.size() : 0;
  return seen;
}

}  // namespace pools

}  // namespace pinfold
