// SPDX-License-Identifier: BSD-3-Clause
#include "index/entry_pool.hpp"

#include "os/check.hpp"

#include <new>

namespace pinfold::index {

namespace {

// Constructs a record at the first use of its memory, in any cache. No thread reads it before `made` counts it.
void make(record_page& page, std::uint32_t number) noexcept {
  PINFOLD_ASSERT(number < page.capacity, "a page has so many records");
  new (page.at(number)) record;
  new (page.own_pins(number)) std::atomic<std::int32_t>{0};
  page.made.store(number + 1, std::memory_order_release);
}

}  // namespace

// Most memory of a large pool goes back to the kernel, at a system call a page; that of a small one is soon used again.
entry_pool::~entry_pool() {
  constexpr std::size_t small = (std::size_t{1} << 20U) / record_page::bytes;
  std::size_t number = 0;
  for (record_page* page = pages_.load(std::memory_order_seq_cst); page != nullptr;) {
    record_page* next = page->next;
    if (++number > small) release_memory(*page);
    page->used_at = nullptr;
    give_back(page);
    page = next;
  }
}

entry_pool::chunk entry_pool::make_chunk(std::size_t record_bytes, bool with_times) noexcept {
  chunk made(take_page(stride_for(record_bytes)));
  if (made.page == nullptr || !with_times) return made;
  try {
    made.used_at.emplace_front(made.page->capacity);
  } catch (const std::bad_alloc&) {
    made.used_at.clear();  // the page is of use without them
  }
  return made;
}

void entry_pool::adopt(chunk made) noexcept {
  PINFOLD_ASSERT(made, "the caller has memory for the chunk");
  while (fresh_ != nullptr) put(carve());
  fresh_ = std::exchange(made.page, nullptr);
  carved_ = 0;
  fresh_->imported = imported_;
  fresh_->used_at = made.used_at.empty() ? nullptr : made.used_at.front().data();
  used_at_.splice_after(used_at_.before_begin(), made.used_at);
  fresh_->next = pages_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < fresh_->made.load(std::memory_order_relaxed); ++i) {  // left by another cache
    fresh_->at(i)->word.store(0, std::memory_order_release);
    new (fresh_->entry_at(i)) entry;
  }
  fresh_->owner.store(&owner_, std::memory_order_release);
  pages_.store(fresh_, std::memory_order_release);
}

// Takes the next record of the newest page, so that its memory is touched only when it is needed.
entry* entry_pool::carve() noexcept {
  const auto number = carved_++;
  PINFOLD_ASSERT(fresh_ != nullptr && number < fresh_->capacity, "the caller knows that the pool is not empty");
  record_page& page = *fresh_;
  if (number == page.made.load(std::memory_order_relaxed)) make(page, number);
  if (carved_ == page.capacity) fresh_ = nullptr;
  return new (page.entry_at(number)) entry;
}

entry* entry_pool::take() noexcept {
  entry* taken = free_;
  if (taken == nullptr) {
    taken = carve();
  } else {
    PINFOLD_ASSERT(taken->now() == entry_state::free, "only free entries wait in the pool");
    free_ = taken->next.get();
    new (taken) entry;
  }
  record* hot = taken->hot();
  hot->word.store(0, std::memory_order_release);
  hot->visited.store(0, std::memory_order_relaxed);
  return taken;
}

void entry_pool::put(entry* done) noexcept {
  PINFOLD_INVARIANT(done->now() == entry_state::free, "only a free entry goes back to the pool");
  PINFOLD_ASSERT(done->in == list_id::none, "a free entry is in no list");
  PINFOLD_ASSERT(record_page::of(done).owner.load(std::memory_order_relaxed) == &owner_,
                 "an entry goes back to the pool that it came from");
  done->next = free_;
  free_ = done;
}

}  // namespace pinfold::index
