// SPDX-License-Identifier: BSD-3-Clause
#include "core/hit_table.hpp"

#include <sys/mman.h>

namespace pinfold::core {

namespace {

constexpr unsigned smallest_step = 16;  // a page
constexpr unsigned small_steps = 26;    // below, tables grow twofold: what they save is less than a new home costs
constexpr unsigned largest_step = 78;

// What is used may not exceed 2/3 of the slots before something is added, 7/8 ever.
bool crowded(std::size_t used, std::size_t slots) noexcept { return used + 2 > slots / 3 * 2; }
bool full(std::size_t used, std::size_t slots) noexcept { return used + 2 > slots / 8 * 7; }

}  // namespace

std::size_t hit_table::bytes_of(std::uintptr_t step) noexcept { return sizeof(std::uint64_t) * slots_in(step); }

hit_table::memory::memory(unsigned step) noexcept : slots_(nullptr), step_(step) {
  if (step > largest_step) return;
  void* fresh = ::mmap(nullptr, bytes_of(step), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh != MAP_FAILED) slots_ = static_cast<std::atomic<std::uint64_t>*>(fresh);
}

hit_table::memory::~memory() {
  if (slots_ != nullptr) ::munmap(slots_, bytes_of(step_));
}

// Where a record stands, and as what, but for the tag.
struct hit_table::places {
  std::array<std::uint64_t, 2> hash;
  std::array<std::uint64_t, 2> slot;
  unsigned count = 0;
  unsigned size_class = 0;
};

hit_table::places hit_table::places_of(const record& one) const noexcept {
  const auto where = one.covered();
  const auto peer = imported_ ? detail::imported_part_of(one).peer : peer_id{};
  const auto number = reinterpret_cast<std::uintptr_t>(&one) >> record_shift;
  places made;
  made.size_class = class_of(where.size());
  const auto add = [&](std::uintptr_t from, std::uintptr_t to) {
    made.hash[made.count] = hash_of(peer, from, made.size_class);
    made.slot[made.count++] =
        number << address_shift | part_of(from, made.size_class) << 6U | part_of(to, made.size_class);
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
  if (tables_.empty()) return smallest_step;
  const auto step = tables_.back().step_;
  if (!crowded(used_, slots_in(step))) return 0;
  return step < small_steps ? step + 2 : step + 1;
}

bool hit_table::insert(record* added) noexcept {
  if (tables_.empty() || full(used_, slots_in(tables_.back().step_))) return false;
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
  const auto home = home_of(hash, tables_.back().step_);
  auto* slots = tables_.back().slots_ + home;
  for (std::size_t probe = 0; probe < longest_probe; ++probe) {
    if (slots[probe].load(std::memory_order_relaxed) != 0) continue;
    slots[probe].store(slot | tag_of(hash, home), std::memory_order_release);
    ++used_;
    return true;
  }
  return false;
}

// Closes the gap by moving later ones of the same run back, as far as their own home allows. Who reads meanwhile may
// miss one that moves, and then asks under the mutex.
void hit_table::take_out(std::uint64_t hash, std::uint64_t slot) noexcept {
  auto* slots = tables_.back().slots_;
  auto gap = home_of(hash, tables_.back().step_);
  slot |= tag_of(hash, gap);
  while (slots[gap].load(std::memory_order_relaxed) != slot) ++gap;
  for (auto next = gap + 1; next - gap < longest_probe; ++next) {  // farther away nothing can move here
    const auto moved = slots[next].load(std::memory_order_relaxed);
    if (moved == 0) break;
    const auto from_home = (next - (moved >> home_shift)) % longest_probe;
    if (from_home < next - gap) continue;  // its home lies behind the gap
    slots[gap].store(moved, std::memory_order_release);
    gap = next;
  }
  slots[gap].store(0, std::memory_order_release);
  --used_;
}

void hit_table::relist(record& one) noexcept {
  const auto at = places_of(one);
  if (!put_all(at)) unlist(one, at.size_class);  // a run can get too long even here, in another order
}

void hit_table::forget(std::uintptr_t table) noexcept {
  if (slots_of(table) != nothing.data()) ::madvise(slots_of(table), bytes_of(table & step_mask), MADV_DONTNEED);
}

std::size_t hit_table::bytes() const noexcept { return tables_.empty() ? 0 : bytes_of(tables_.back().step_); }

}  // namespace pinfold::core
