// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/monitors/announce.hpp>

#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"

#include <cstdint>

namespace pinfold {

void announce_gone(const void* address, std::size_t bytes) noexcept {
  const auto gone = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  auto* event_log = invalidation::event_log::if_there();
  const auto* watched = invalidation::registered_filter::if_there();
  if (gone && event_log != nullptr && watched != nullptr && watched->touches(*gone)) event_log->post(*gone);
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
