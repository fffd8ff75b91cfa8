// SPDX-License-Identifier: BSD-3-Clause
#include "watch/watched_memory.hpp"

#include "watch/wiped_pages.hpp"

#include <algorithm>
#include <new>

namespace pinfold::watch {

std::atomic<watched_memory*> watched_memory::made{nullptr};

watched_memory& watched_memory::here() {
  if (auto* there = if_there()) return *there;
  void* const fresh = wiped_pages(sizeof(watched_memory));
  if (fresh == nullptr) throw std::bad_alloc();
  auto* mine = new (fresh) watched_memory;
  watched_memory* none = nullptr;
  if (made.compare_exchange_strong(none, mine)) return *mine;
  ::munmap(fresh, sizeof(watched_memory));
  return *none;
}

// Once for every 4 GiB of the address space that something is registered in; it stays.
bool watched_memory::make_part(std::size_t number) noexcept {
  if (parts_[number].load(std::memory_order_acquire) != nullptr) return true;
  void* const fresh = wiped_pages(sizeof(part));
  if (fresh == nullptr) return false;
  part* none = nullptr;
  if (!parts_[number].compare_exchange_strong(none, new (fresh) part)) ::munmap(fresh, sizeof(part));
  return true;
}

bool watched_memory::make_parts(const range& memory) noexcept {
  if (memory.empty()) return true;
  const auto last = (memory.end - 1) >> part_shift;
  for (auto number = memory.begin >> part_shift; number <= last && number < parts_.size(); ++number)
    if (!make_part(number)) return false;
  return true;
}

template <class F>
void watched_memory::for_each_granule(const range& memory, F&& each) noexcept {
  if (memory.empty()) return;
  const auto end = std::uintptr_t{1} << (address_bits - granule_shift);
  const auto last = std::min((memory.end - 1) >> granule_shift, end - 1);
  for (auto granule = memory.begin >> granule_shift; granule <= last; ++granule) each(granule);
}

watched_memory::counter* watched_memory::at(std::uintptr_t granule) noexcept {
  part* const in = parts_[granule / granules].load(std::memory_order_acquire);
  return in == nullptr ? nullptr : &in->counters[granule % granules];
}

void watched_memory::add(const range& memory) noexcept {
  if ((memory.end - 1) >> address_bits != 0) beyond_.store(true);
  for_each_granule(memory, [this](std::uintptr_t granule) {
    counter* const count = at(granule);
    if (count == nullptr) return;
    auto now = count->load(std::memory_order_relaxed);
    while (now != full && !count->compare_exchange_weak(now, static_cast<std::uint8_t>(now + 1))) {
    }
  });
}

void watched_memory::remove(const range& memory) noexcept {
  for_each_granule(memory, [this](std::uintptr_t granule) {
    counter* const count = at(granule);
    if (count == nullptr) return;
    auto now = count->load(std::memory_order_relaxed);
    while (now != full && now != 0 && !count->compare_exchange_weak(now, static_cast<std::uint8_t>(now - 1))) {
    }
  });
}

bool watched_memory::touches(const range& memory) const noexcept {
  if (memory.empty()) return false;
  if ((memory.end - 1) >> address_bits != 0 && beyond_.load(std::memory_order_relaxed)) return true;
  const auto end = std::uintptr_t{1} << (address_bits - granule_shift);
  const auto last = std::min((memory.end - 1) >> granule_shift, end - 1);
  for (auto granule = memory.begin >> granule_shift; granule <= last;) {
    const part* const in = parts_[granule / granules].load(std::memory_order_acquire);
    const auto next_part = (granule / granules + 1) * granules;
    for (; in != nullptr && granule <= last && granule < next_part; ++granule)
      if (in->counters[granule % granules].load(std::memory_order_relaxed) != 0) return true;
    granule = next_part;
  }
  return false;
}

}  // namespace pinfold::watch
