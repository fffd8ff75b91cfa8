// SPDX-License-Identifier: BSD-3-Clause
#include "index/hit_table.hpp"

#include <sys/mman.h>

namespace pinfold::index {

namespace {

constexpr unsigned smallest_step = 16;  // a page
constexpr unsigned small_steps = 26;    // below, tables double: smaller steps save less than the rehashing costs
constexpr unsigned largest_step = 78;

}  // namespace

std::size_t hit_table::bytes_of(std::uintptr_t step) noexcept { return sizeof(std::uint64_t) * slots_in(step); }

hit_table::memory::memory(unsigned step) noexcept : slots_(nullptr), step_(step) {
  if (step > largest_step) return;
  // Populated: a page that is read before it is written costs a second fault, which interrupts all other threads.
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void* fresh = ::mmap(nullptr, bytes_of(step), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (fresh != MAP_FAILED) slots_ = static_cast<std::atomic<std::uint64_t>*>(fresh);
}

hit_table::memory::~memory() {
  if (slots_ != nullptr) ::munmap(slots_, bytes_of(step_));
}

// The places of a record in the table, one or two granules of its size, and their words without the tag.
struct hit_table::places {
  range where;
  peer_id peer;
  std::uint64_t number;
  unsigned size_class;
  std::uintptr_t second;  // the granule of its last byte
  bool two;

  [[gnu::always_inline]] places(const record& one, bool imported) noexcept
      : where(one.covered()),
        peer(imported ? detail::imported_part_of(one).peer : peer_id{}),
        number(reinterpret_cast<std::uintptr_t>(&one) >> record_shift << address_shift),
        size_class(class_of(where.size())),
        second((where.end - 1) >> size_class << size_class),
        two(second > where.begin) {}

  [[nodiscard, gnu::always_inline]] std::uint64_t hash(std::uintptr_t from) const noexcept {
    return hash_of(peer, from, size_class);
  }
  [[nodiscard, gnu::always_inline]] std::uint64_t slot(std::uintptr_t from, std::uintptr_t to) const noexcept {
    return number | part_of(from, size_class) << 6U | part_of(to - 1, size_class);
  }
};

// At most 2/3 of the slots may be used before an insert, and never more than 7/8. No search begins in the last slots,
// and the very last is 0.
hit_table::slots_of_step::slots_of_step(const memory& of) noexcept
    : slots(of.slots_),
      homes(slots_in(of.step_) - longest_probe),
      crowded_from(slots_in(of.step_) / 3 * 2 - 1),
      full_from(slots_in(of.step_) / 8 * 7 - 1) {}

unsigned hit_table::next_step() const noexcept {
  if (tables_.empty()) return smallest_step;
  const auto step = tables_.back().step_;
  return step < small_steps ? step + 2 : step + 1;
}

template <bool perhaps_there>
[[gnu::always_inline]] inline bool hit_table::slots_of_step::put(std::uint64_t hash, std::uint64_t slot) noexcept {
  const auto home = home_among(hash, homes);
  slot |= tag_of(hash, home);
  auto* at = slots + home;
  for (auto* const end = at + longest_probe; at->load(std::memory_order_relaxed) != 0;) {
    if (perhaps_there && at->load(std::memory_order_relaxed) == slot) return true;
    if (++at == end) return false;
  }
  at->store(slot, std::memory_order_release);
  ++used;
  return true;
}

bool hit_table::slots_of_step::has(std::uint64_t hash, std::uint64_t slot) const noexcept {
  const auto home = home_among(hash, homes);
  slot |= tag_of(hash, home);
  for (auto *at = slots + home, *end = at + longest_probe; at != end; ++at) {
    const auto found = at->load(std::memory_order_relaxed);
    if (found == slot || found == 0) return found == slot;
  }
  return false;
}

// Closes the gap by moving later slots of the same run back, as far as their own home allows. A concurrent reader may
// miss a slot that moves, and then asks under the mutex.
void hit_table::slots_of_step::take_out(std::uint64_t hash, std::uint64_t slot) noexcept {
  auto gap = home_among(hash, homes);
  slot |= tag_of(hash, gap);
  while (slots[gap].load(std::memory_order_relaxed) != slot) ++gap;
  for (auto next = gap + 1; next - gap < longest_probe; ++next) {  // no slot farther away can move here
    const auto moved = slots[next].load(std::memory_order_relaxed);
    if (moved == 0) break;
    const auto from_home = (next - (moved >> home_shift)) % longest_probe;
    if (from_home < next - gap) continue;  // its home lies behind the gap
    slots[gap].store(moved, std::memory_order_release);
    gap = next;
  }
  slots[gap].store(0, std::memory_order_release);
  --used;
}

// A record is in both of its places or in none.
template <bool perhaps_there>
[[gnu::always_inline]] inline bool hit_table::put_all(slots_of_step& into, const places& at) noexcept {
  const auto begin = at.where.begin;
  if (!at.two) [[likely]]
    return into.put<perhaps_there>(at.hash(begin), at.slot(begin, at.where.end));
  if (!into.put<perhaps_there>(at.hash(begin), at.slot(begin, at.second))) return false;
  if (into.put<perhaps_there>(at.hash(at.second), at.slot(at.second, at.where.end))) return true;
  into.take_out(at.hash(begin), at.slot(begin, at.second));
  return false;
}

bool hit_table::has_all(const slots_of_step& in, const places& at) noexcept {
  const auto begin = at.where.begin;
  return in.has(at.hash(begin), at.slot(begin, at.two ? at.second : at.where.end));
}

[[gnu::always_inline]] inline void hit_table::take_all_out(slots_of_step& of, const places& at) noexcept {
  const auto begin = at.where.begin;
  of.take_out(at.hash(begin), at.slot(begin, at.two ? at.second : at.where.end));
  if (at.two) of.take_out(at.hash(at.second), at.slot(at.second, at.where.end));
}

bool hit_table::insert(record* added) noexcept {
  if (now_.used >= now_.full_from) return false;
  const places at(*added, imported_);
  if (!put_all<false>(now_, at)) return false;
  if (growing() && !put_all<false>(next_, at)) [[unlikely]] {
    take_all_out(now_, at);
    return false;
  }
  added->set(record::listed);
  if (++in_class_[at.size_class] == 1)
    classes_.store(classes_.load(std::memory_order_relaxed) | std::uint64_t{1} << at.size_class,
                   std::memory_order_release);
  return true;
}

void hit_table::erase(record* gone) noexcept {
  const places at(*gone, imported_);
  take_all_out(now_, at);
  if (growing() && has_all(next_, at)) [[unlikely]]
    take_all_out(next_, at);
  unlist(*gone, at.size_class);
}

void hit_table::unlist(record& gone, unsigned size_class) noexcept {
  gone.clear(record::listed);
  if (--in_class_[size_class] == 0)
    classes_.store(classes_.load(std::memory_order_relaxed) & ~(std::uint64_t{1} << size_class),
                   std::memory_order_release);
}

void hit_table::relist(record& one) noexcept {
  const places at(one, imported_);
  if (put_all<true>(next_, at)) return;  // one that came while the table grows is there already
  take_all_out(now_, at);                // a run can get too long even here, in another order
  unlist(one, at.size_class);
}

void hit_table::grow(memory larger) noexcept {
  will_grow_ = static_cast<bool>(larger);
  if (!larger) return;
  tables_.push_back(std::move(larger));
  next_ = slots_of_step(tables_.back());
  if (now_.used == 0) change_over();
}

// Readers of the old table find nothing there, which is harmless: its pages are given back, its addresses are not.
void hit_table::change_over() noexcept {
  now_ = std::exchange(next_, {});
  will_grow_ = false;
  table_.store(reinterpret_cast<std::uintptr_t>(now_.slots) | tables_.back().step_, std::memory_order_release);
  if (tables_.size() < 2) return;
  const auto& old = tables_[tables_.size() - 2];
  ::madvise(old.slots_, bytes_of(old.step_), MADV_DONTNEED);
}

std::size_t hit_table::bytes() const noexcept { return tables_.empty() ? 0 : bytes_of(tables_.back().step_); }

}  // namespace pinfold::index
