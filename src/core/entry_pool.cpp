// SPDX-License-Identifier: BSD-3-Clause
#include "core/entry_pool.hpp"

#include <new>

namespace pinfold::core {

namespace {

constexpr std::size_t rounded_up(std::size_t bytes) noexcept {
  constexpr std::size_t unit = alignof(std::max_align_t);
  return (bytes + unit - 1) / unit * unit;
}

void reset(entry& used) noexcept {
  used.revoked.store(false, std::memory_order_relaxed);
  used.stale.store(false, std::memory_order_relaxed);
  used.left = used.right = used.previous = used.next = nullptr;
  used.pins = 0;
  used.access = rights::none;
  used.doomed = used.unshared = used.persistent = used.bypass = used.in_driver = used.disturbed = used.counted = false;
  used.bytes = 0;
  used.data = nullptr;
  used.failure = {};
  used.hits = 0;
  used.opened_at = {};
}

}  // namespace

std::size_t entry_pool::stride(std::size_t token_bytes) noexcept { return sizeof(entry) + rounded_up(token_bytes); }

entry_pool::~entry_pool() {
  while (chunks_ != nullptr) {
    std::unique_ptr<chunk> block(chunks_);
    chunks_ = block->next;
    for (std::size_t i = 0; i < entries_per_chunk; ++i) at(*block, i, stride_)->~entry();
  }
}

std::unique_ptr<entry_pool::chunk> entry_pool::make_chunk(engine* owner, std::size_t token_bytes) noexcept {
  const std::size_t each = stride(token_bytes);
  std::unique_ptr<chunk> block(new (std::nothrow) chunk);
  if (!block) return nullptr;
  block->memory.reset(new (std::nothrow) std::byte[each * entries_per_chunk]);
  if (!block->memory) return nullptr;
  for (std::size_t i = 0; i < entries_per_chunk; ++i) (new (block->memory.get() + i * each) entry)->owner = owner;
  return block;
}

void entry_pool::adopt(std::unique_ptr<chunk> made) noexcept {
  for (std::size_t i = 0; i < entries_per_chunk; ++i) put(at(*made, i, stride_));
  made->next = chunks_;
  chunks_ = made.release();
}

entry* entry_pool::take() noexcept {
  entry* taken = free_;
  free_ = taken->next;
  reset(*taken);
  return taken;
}

void entry_pool::put(entry* done) noexcept {
  PINFOLD_INVARIANT(done->now() == entry_state::free, "only a free entry goes back to the pool");
  done->next = free_;
  free_ = done;
}

entry* entry_pool::at(const chunk& block, std::size_t number, std::size_t stride) noexcept {
  return std::launder(reinterpret_cast<entry*>(block.memory.get() + number * stride));
}

}  // namespace pinfold::core
