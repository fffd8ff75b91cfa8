// SPDX-License-Identifier: BSD-3-Clause
#include "core/entry_pool.hpp"

#include <new>

namespace pinfold::core {

namespace {

void reset(entry& used) noexcept {
  used.hot->word.store(0, std::memory_order_release);
  used.hot->visited.store(0, std::memory_order_relaxed);
  used.left = used.right = used.previous = used.next = nullptr;
  used.access = rights::none;
  used.doomed = used.unshared = used.persistent = used.bypass = used.queued = used.in_driver = used.disturbed =
      used.counted = false;
  used.bytes = 0;
  used.data = nullptr;
  used.failure = {};
  used.hits.store(0, std::memory_order_relaxed);
  used.opened_at = {};
}

}  // namespace

entry_pool::~entry_pool() {
  for (record_page* page = pages_.load(); page != nullptr;) {
    record_page* next = page->next;
    delete[] std::exchange(page->entries, nullptr);
    give_back(page);
    page = next;
  }
}

entry_pool::chunk entry_pool::make_chunk(std::size_t record_bytes) noexcept {
  chunk made;
  made.page = take_page(stride_for(record_bytes));
  if (made.page == nullptr) return made;
  made.entries.reset(new (std::nothrow) entry[made.page->capacity()]);
  return made;
}

void entry_pool::adopt(chunk made) noexcept {
  record_page* page = std::exchange(made.page, nullptr);
  page->entries = made.entries.release();
  for (std::size_t i = page->capacity(); i-- > 0;) {
    page->entries[i].hot = page->at(i);
    page->entries[i].own_pins = page->own_pins(i);
    put(&page->entries[i]);
  }
  page->next = pages_.load(std::memory_order_relaxed);
  page->owner.store(&owner_, std::memory_order_release);
  pages_.store(page, std::memory_order_release);
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

}  // namespace pinfold::core
