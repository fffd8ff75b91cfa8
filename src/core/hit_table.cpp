// SPDX-License-Identifier: BSD-3-Clause
#include "core/hit_table.hpp"

#include <sys/mman.h>

namespace pinfold::core {

alignas(64) std::array<std::atomic<std::uint64_t>, 2> hit_table::nothing{};

namespace {

constexpr unsigned smallest_log2 = 9;  // a page
constexpr unsigned largest_log2 = 40;

std::size_t bytes_of(unsigned log2) noexcept { return sizeof(std::uint64_t) << log2; }

// What is used may not exceed 3/4 of the slots before something is added, 7/8 ever.
bool crowded(std::size_t used, unsigned log2) noexcept { return used + 2 > (std::size_t{3} << log2) / 4; }
bool full(std::size_t used, unsigned log2) noexcept { return used + 2 > (std::size_t{7} << log2) / 8; }

}  // namespace

hit_table::memory::memory(unsigned log2) noexcept : slots_(nullptr), log2_(log2) {
  if (log2 > largest_log2) return;
  void* fresh = ::mmap(nullptr, bytes_of(log2), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh != MAP_FAILED) slots_ = static_cast<std::atomic<std::uint64_t>*>(fresh);
}

hit_table::memory::~memory() {
  if (slots_ != nullptr) ::munmap(slots_, bytes_of(log2_));
}

// Where a record stands, and as what.
struct hit_table::places {
  std::array<std::uint64_t, 2> hash;
  std::array<std::uint64_t, 2> slot;
  unsigned count = 0;
  unsigned size_class = 0;
};

hit_table::places hit_table::places_of(const record& one) const noexcept {
  const auto where = one.covered();
  const auto peer = imported_ ? reinterpret_cast<const detail::imported_part*>(&one + 1)->peer : peer_id{};
  const auto number = reinterpret_cast<std::uintptr_t>(&one) >> record_shift;
  places made;
  made.size_class = class_of(where.size());
  const auto add = [&](std::uintptr_t from, std::uintptr_t to) {
    const auto at = place_of(peer, from, made.size_class);
    made.hash[made.count] = at.hash;
    made.slot[made.count++] =
        number << address_shift | at.tag | part_of(from, made.size_class) << 6U | part_of(to, made.size_class);
  };
  const auto last = where.end - 1;
  const auto second = last >> made.size_class << made.size_class;  // the granule of its last byte
  if (second <= where.begin) {
    add(where.begin, last);
  } else {
    add(where.begin, second - 1);
    add(second, last);
  }
  return made;
}

unsigned hit_table::wants() const noexcept {
  if (tables_.empty()) return smallest_log2;
  const auto log2 = tables_.back().log2_;
  return crowded(used_, log2) ? log2 + 1 : 0;
}

bool hit_table::insert(record* added) noexcept {
  if (tables_.empty() || full(used_, tables_.back().log2_)) return false;
  const auto at = places_of(*added);
  if (!put_all(at)) return false;
  added->set(record::listed);
  if (++in_class_[at.size_class] == 1)
    classes_.store(classes_.load(std::memory_order_relaxed) | std::uint64_t{1} << at.size_class,
                   std::memory_order_release);
  return true;
}

void hit_table::erase(record* gone) noexcept {
  const auto at = places_of(*gone);
  for (unsigned i = 0; i < at.count; ++i) take_out(at.hash[i], at.slot[i]);
  unlist(*gone, at.size_class);
}

void hit_table::unlist(record& gone, unsigned size_class) noexcept {
  gone.clear(record::listed);
  if (--in_class_[size_class] == 0)
    classes_.store(classes_.load(std::memory_order_relaxed) & ~(std::uint64_t{1} << size_class),
                   std::memory_order_release);
}

bool hit_table::put_all(const places& at) noexcept {
  if (!put(at.hash[0], at.slot[0])) return false;
  if (at.count == 1 || put(at.hash[1], at.slot[1])) return true;
  take_out(at.hash[0], at.slot[0]);
  return false;
}

bool hit_table::put(std::uint64_t hash, std::uint64_t slot) noexcept {
  const auto& table = tables_.back();
  const auto mask = (std::uint64_t{1} << table.log2_) - 1;
  auto index = hash >> (64 - table.log2_);
  for (std::size_t probe = 0; probe < longest_probe; ++probe, index = (index + 1) & mask) {
    if (table.slots_[index].load(std::memory_order_relaxed) != 0) continue;
    table.slots_[index].store(slot, std::memory_order_release);
    ++used_;
    return true;
  }
  return false;
}

// Closes the gap by moving later ones of the same run back, as far as their own home allows. Who reads meanwhile may
// miss one that moves, and then asks under the mutex.
void hit_table::take_out(std::uint64_t hash, std::uint64_t slot) noexcept {
  const auto& table = tables_.back();
  const auto mask = (std::uint64_t{1} << table.log2_) - 1;
  auto gap = hash >> (64 - table.log2_);
  while (table.slots_[gap].load(std::memory_order_relaxed) != slot) gap = (gap + 1) & mask;
  for (auto next = (gap + 1) & mask;; next = (next + 1) & mask) {
    const auto moved = table.slots_[next].load(std::memory_order_relaxed);
    if (moved == 0) break;
    const auto home = home_of(moved) >> (64 - table.log2_);
    if (((next - home) & mask) < ((next - gap) & mask)) continue;  // its home lies behind the gap
    table.slots_[gap].store(moved, std::memory_order_release);
    gap = next;
  }
  table.slots_[gap].store(0, std::memory_order_release);
  --used_;
}

std::uint64_t hit_table::home_of(std::uint64_t slot) const noexcept {
  const auto at = places_of(*record_of(slot));
  return at.slot[0] == slot ? at.hash[0] : at.hash[1];
}

void hit_table::relist(record& one) noexcept {
  const auto at = places_of(one);
  if (!put_all(at)) unlist(one, at.size_class);  // a run can get too long even here, in another order
}

void hit_table::forget(std::uintptr_t table) noexcept {
  const auto bytes = bytes_of(static_cast<unsigned>(table & 63U));
  if (slots_of(table) != nothing.data()) ::madvise(slots_of(table), bytes, MADV_DONTNEED);
}

std::size_t hit_table::bytes() const noexcept {
  std::size_t all = 0;
  for (const auto& one : tables_) all += bytes_of(one.log2_);
  return all;
}

}  // namespace pinfold::core
