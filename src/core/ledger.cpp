// SPDX-License-Identifier: BSD-3-Clause
#include "core/debug_layout.hpp"
#include "core/hints.hpp"
#include "os/barrier.hpp"
#include "os/check.hpp"
#include "os/page_bytes.hpp"

#include <pinfold/detail/ledger.hpp>

#include <cstddef>
#include <new>
#include <span>
#include <sys/mman.h>

namespace pinfold::detail {

std::atomic<ledger*> ledger::all{nullptr};
constinit ledger ledger::no_ledger(nullptr);
thread_local constinit ledger* ledger::mine = &no_ledger;

namespace {

thread_local constinit bool at_its_end = false;

void clear(std::span<std::uint64_t> hints) noexcept {
  for (auto& hint : hints) std::atomic_ref(hint).store(0, std::memory_order_relaxed);
}

// The kernel discards whole pages without touching them; if it refuses, as for locked memory, this writes all hints.
void forget(std::span<std::uint64_t> hints) noexcept {
  const auto page = os::page_bytes();
  const auto before = (page - reinterpret_cast<std::uintptr_t>(hints.data()) % page) % page / sizeof hints[0];
  if (before > hints.size()) return clear(hints);
  const auto after = hints.subspan(before);
  const auto whole = after.first(after.size() - after.size_bytes() % page / sizeof hints[0]);
  if (::madvise(whole.data(), whole.size_bytes(), MADV_DONTNEED) != 0) return clear(hints);
  clear(hints.first(before));
  clear(after.subspan(whole.size()));
}

}  // namespace

ledger::ledger() noexcept {
  for (auto& slot : slots_) slot.store(bias, std::memory_order_relaxed);
}

// Gives the ledger back when its thread ends. Pins that the thread takes after that are counted in the entries.
struct ledger_owner {
  static void forget_hints() noexcept {
    for (ledger* each = ledger::all.load(std::memory_order_acquire); each != nullptr; each = each->next_)
      forget(each->hints_);
  }

  static constexpr debugging::ledger_layout layout() noexcept {
    return {
        .first = &ledger::all,
        .next = offsetof(ledger, next_),
        .cells = offsetof(ledger, cells_),
        .cell_count = ledger::cell_count,
        .slots = offsetof(ledger, slots_),
        .slot_count = ledger::slot_count,
        .slot_shift = ledger::count_bits,
        .slot_bias = ledger::bias,
        .hits = offsetof(ledger, hits_),
        .finds = offsetof(ledger, finds_),
        .cache_count = ledger::most_caches,
    };
  }

  ~ledger_owner() {
    at_its_end = true;
    ledger* left = std::exchange(ledger::mine, &ledger::no_ledger);
    PINFOLD_ASSERT(left != &ledger::no_ledger && left->taken_.load(std::memory_order_relaxed),
                   "a thread keeps its ledger to its end");
    left->taken_.store(false, std::memory_order_release);
  }
};

ledger* ledger::take_one() noexcept {
  for (ledger* one = all.load(std::memory_order_acquire); one != nullptr; one = one->next_) {
    if (!one->taken_.load(std::memory_order_relaxed) && !one->taken_.exchange(true, std::memory_order_acquire))
      return one;
  }
  void* zeroed = ::mmap(nullptr, sizeof(ledger), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (zeroed == MAP_FAILED) return nullptr;
  auto* fresh = new (zeroed) ledger;
  fresh->next_ = all.load(std::memory_order_relaxed);
  while (!all.compare_exchange_weak(fresh->next_, fresh, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return fresh;
}

ledger* ledger::first_of_this_thread() noexcept {
  if (at_its_end || os::barrier_in_use() == os::barrier_policy::fences) return nullptr;
  ledger* taken = take_one();
  if (taken == nullptr) return nullptr;
  PINFOLD_ASSERT(mine == &no_ledger, "a thread takes one ledger");
  mine = taken;
  static thread_local const ledger_owner owner;
  static_cast<void>(owner);
  return taken;
}

bool ledger::change(const record* one, std::uint64_t by, std::uint64_t limit) noexcept {
  auto& slot = slots_[number_of(one) % slot_count];
  auto word = slot.load(std::memory_order_relaxed);
  if (record_in(word) != one) {
    if (held_by(word) != 0) return false;
    word = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(one)) << count_bits | bias;
  } else if ((word & count_mask) == limit) {
    return false;
  }
  store_before_barrier(slot, word + by);
  return true;
}

// In this order: a thread that sums reads the cell before the slot, and must not miss the pin.
bool ledger::move_to_slot(pin_cell& cell, const record* one) noexcept {
  if (&cell != &cell_of(one) || !add(one)) return false;
  store_before_barrier(cell, 0);
  return true;
}

// The cell first, for `move_to_slot`.
std::int64_t ledger::pins_on(const record* one) const noexcept {
  const auto number = number_of(one);
  const auto cell = record_of(cells_[number % cell_count].load(std::memory_order_acquire));
  const auto word = slots_[number % slot_count].load(std::memory_order_acquire);
  return (cell == one ? 1 : 0) + (record_in(word) == one ? held_by(word) : 0);
}

std::int64_t ledger::sum(const record* one) noexcept {
  std::int64_t total = 0;
  for (const ledger* each = all.load(std::memory_order_acquire); each != nullptr; each = each->next_)
    total += each->pins_on(one);
  return total;
}

bool ledger::held_here(const record* one) noexcept { return mine->pins_on(one) > 0; }

std::size_t ledger::others() noexcept {
  if (os::barrier_in_use() == os::barrier_policy::fences) return SIZE_MAX;
  std::size_t count = 0;
  for (const ledger* each = all.load(std::memory_order_acquire); each != nullptr; each = each->next_)
    if (each != mine && each->taken_.load(std::memory_order_relaxed)) ++count;
  return count;
}

std::uint64_t ledger::hits(std::size_t cache) noexcept {
  std::uint64_t total = 0;
  for (const ledger* each = all.load(std::memory_order_acquire); each != nullptr; each = each->next_)
    total += each->hits_[cache].load(std::memory_order_relaxed);
  return total;
}

std::uint64_t ledger::finds(std::size_t cache) noexcept {
  std::uint64_t total = 0;
  for (const ledger* each = all.load(std::memory_order_acquire); each != nullptr; each = each->next_)
    total += each->finds_[cache].load(std::memory_order_relaxed);
  return total;
}

}  // namespace pinfold::detail

constinit const pinfold::debugging::ledger_layout pinfold::core::ledger_layout = detail::ledger_owner::layout();

void pinfold::core::forget_hints() noexcept { detail::ledger_owner::forget_hints(); }
