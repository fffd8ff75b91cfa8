// SPDX-License-Identifier: BSD-3-Clause
#include "index/record_page.hpp"

#include "invalidation/event_log.hpp"
#include "os/check.hpp"
#include "os/page_bytes.hpp"

#include <array>
#include <new>
#include <sys/mman.h>

namespace pinfold::index {

namespace {

// Control blocks and pages that are not in use. A child of fork(2) makes a new store: another thread of its parent may
// have held the mutex.
struct store {
  os::mutex guard;
  control_block* unused PINFOLD_GUARDED_BY(guard) = nullptr;
  std::array<record_page*, largest_stride / 32 + 1> pages PINFOLD_GUARDED_BY(guard){};
  std::byte* fresh PINFOLD_GUARDED_BY(guard) = nullptr;  // pages that never had records
  std::size_t fresh_left PINFOLD_GUARDED_BY(guard) = 0;
  std::uint32_t fresh_link PINFOLD_GUARDED_BY(guard) = 0;  // `links_from` of the first one
  std::size_t next_mapping PINFOLD_GUARDED_BY(guard) = 1;
  std::uint64_t process = 0;
};

std::atomic<store*> current{nullptr};
std::atomic<std::uint32_t> mappings{0};  // a child continues: its parent's pages keep their numbers

store* store_here() noexcept try {
  const auto process = invalidation::event_log::here().process();
  store* found = current.load(std::memory_order_acquire);
  while (found == nullptr || found->process != process) {
    auto* fresh = new (std::nothrow) store;
    if (fresh == nullptr) return nullptr;
    fresh->process = process;
    if (current.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return fresh;
    delete fresh;
  }
  return found;
} catch (const std::bad_alloc&) {
  return nullptr;
}

constexpr std::size_t largest_mapping = record_mappings::largest / record_page::bytes;  // in pages

// Maps `count` record pages, aligned to `record_page::bytes`, which is larger than the system's page.
std::byte* map_pages(std::size_t count) noexcept {
  const auto bytes = count * record_page::bytes;
  void* mapped =
      ::mmap(nullptr, bytes + record_page::bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const auto before = -reinterpret_cast<std::uintptr_t>(first) % record_page::bytes;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + bytes, record_page::bytes - before);
  return first + before;
}

bool map_more(store& to) noexcept PINFOLD_REQUIRES(to.guard) {
  if (mappings.load(std::memory_order_relaxed) >= record_mappings::most) return false;
  to.fresh = map_pages(to.next_mapping);
  if (to.fresh == nullptr) return false;
  const auto number = mappings.fetch_add(1, std::memory_order_relaxed);
  PINFOLD_ASSERT(number < record_mappings::most, "a link can name every mapping");
  record_mappings::first[number] = to.fresh;
  to.fresh_link = number << record_mappings::offset_bits;
  to.fresh_left = to.next_mapping;
  if (to.next_mapping < largest_mapping) to.next_mapping *= 2;
  return true;
}

record_page* fresh_page(store& from, std::uint32_t stride) noexcept PINFOLD_REQUIRES(from.guard) {
  if (from.fresh_left == 0 && !map_more(from)) return nullptr;
  --from.fresh_left;
  auto* const taken = std::exchange(from.fresh, from.fresh + record_page::bytes);
  PINFOLD_ASSERT(reinterpret_cast<std::uintptr_t>(taken) % record_page::bytes == 0,
                 "a record finds its page by its own address");
#ifdef MADV_POPULATE_WRITE
  ::madvise(taken, record_page::bytes, MADV_POPULATE_WRITE);  // one call for several faults; Linux 5.14
#endif
  constexpr std::uint32_t links_in_page = record_page::bytes / 8;
  return new (taken) record_page(stride, std::exchange(from.fresh_link, from.fresh_link + links_in_page));
}

}  // namespace

control_block* take_control_block() noexcept {
  store* from = store_here();
  if (from == nullptr) return nullptr;
  control_block* taken = nullptr;
  {
    os::scoped_lock guard(from->guard);
    taken = from->unused;
    if (taken != nullptr) from->unused = taken->next;
  }
  return taken != nullptr ? taken : new (std::nothrow) control_block(from->process);
}

void give_back(control_block* done) noexcept {
  store* to = store_here();
  if (to == nullptr || to->process != done->process) return;
  os::scoped_lock guard(to->guard);
  done->next = to->unused;
  to->unused = done;
}

record_page* take_page(std::size_t stride) noexcept {
  PINFOLD_ASSERT(stride > 0 && stride % 32 == 0 && stride <= largest_stride, "the stride is one of stride_for");
  store* from = store_here();
  if (from == nullptr) return nullptr;
  os::scoped_lock guard(from->guard);
  if (record_page* used = from->pages[stride / 32]; used != nullptr) {
    PINFOLD_ASSERT(used->stride == stride && used->owner.load(std::memory_order_relaxed) == nullptr,
                   "a page is reused for records of the same size, once its owner is gone");
    from->pages[stride / 32] = used->next;
    return used;
  }
  return fresh_page(*from, static_cast<std::uint32_t>(stride));
}

void release_memory(record_page& done) noexcept {
  const auto page = os::page_bytes();
  const auto pins = reinterpret_cast<std::uintptr_t>(done.own_pins(done.capacity - 1));
  const auto begin = reinterpret_cast<std::uintptr_t>(&done) + page;
  const auto end = pins - pins % page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void give_back(record_page* done) noexcept {
  store* to = store_here();
  if (to == nullptr) return;
  done->owner.store(nullptr, std::memory_order_release);
  os::scoped_lock guard(to->guard);
  done->next = to->pages[done->stride / 32];
  to->pages[done->stride / 32] = done;
}

}  // namespace pinfold::index
