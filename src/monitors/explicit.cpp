// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/monitors/explicit.hpp>

#include "invalidation/board.hpp"
#include "invalidation/watched_memory.hpp"

#include <cstdint>

namespace pinfold {

void announce_gone(const void* address, std::size_t bytes) noexcept {
  const auto gone = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  auto* board = watch::board::if_there();
  const auto* watched = watch::watched_memory::if_there();
  if (gone && board != nullptr && watched != nullptr && watched->touches(*gone)) board->post(*gone);
}

void* announcing_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
  return behind_->allocate(bytes, alignment);
}

void announcing_resource::do_deallocate(void* address, std::size_t bytes, std::size_t alignment) {
  announce_gone(address, bytes);
  behind_->deallocate(address, bytes, alignment);
}

bool announcing_resource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  const auto* same = dynamic_cast<const announcing_resource*>(&other);
  return same != nullptr && (same->behind_ == behind_ || *same->behind_ == *behind_);
}

}  // namespace pinfold
