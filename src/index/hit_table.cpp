// SPDX-License-Identifier: BSD-3-Clause
#include "index/hit_table.hpp"

#include "os/check.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace pinfold::index {

namespace {

constexpr unsigned smallest_step = 7;  // less than a page
constexpr unsigned largest_step = 40;
constexpr std::size_t homes_at_once = 64;

}  // namespace

std::size_t hit_table::bytes_of(unsigned step) noexcept {
  return sizeof(std::uint64_t) * (homes_in(step) + slots_behind);
}

hit_table::memory::memory(unsigned step) noexcept : slots_(nullptr), step_(step) {
  if (step > largest_step) return;
  // Populated: reading a page before writing it costs a second fault, which interrupts all other threads.
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void* fresh = ::mmap(nullptr, bytes_of(step), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (fresh != MAP_FAILED) slots_ = static_cast<std::atomic<std::uint64_t>*>(fresh);
}

hit_table::memory::~memory() {
  if (slots_ != nullptr) ::munmap(slots_, bytes_of(step_));
}

// The places of a record in the table, one or two granules of its size.
class hit_table::places {
 public:
  [[gnu::always_inline]] places(const record& one, bool imported) noexcept
      : where_(one.covered()),
        peer_(imported ? detail::imported_part_of(one).peer : peer_id{}),
        number_(reinterpret_cast<std::uintptr_t>(&one) >> record_shift),
        size_class(class_of(where_.size())),
        two(granule_of(where_.begin, size_class) != granule_of(where_.end - 1, size_class)) {
    PINFOLD_ASSERT(where_.begin < where_.end, "a record in the table covers at least a byte");
    PINFOLD_ASSERT(number_ >> last_shift == 0, "the address of a record leaves the bits of the parts alone");
  }

  [[nodiscard, gnu::always_inline]] place first() const noexcept {
    return place_of(where_.begin, two ? middle() - 1 : where_.end - 1);
  }
  // The granule of the record's last byte.
  [[nodiscard]] place second() const noexcept { return place_of(middle(), where_.end - 1); }
  // Returns the place of a slot of the record. A record that covered the same part of both granules would be larger
  // than one.
  [[nodiscard]] place of(std::uint64_t slot) const noexcept {
    const auto one = first();
    return slot << (64 - tag_shift) == one.slot << (64 - tag_shift) ? one : second();
  }

 private:
  [[nodiscard]] std::uintptr_t middle() const noexcept {
    return granule_of(where_.end - 1, size_class) << size_class << 1U;
  }
  [[nodiscard, gnu::always_inline]] place place_of(std::uintptr_t from, std::uintptr_t last) const noexcept {
    const auto parts = part_of(from, size_class) << (first_shift - last_shift) | part_of(last, size_class);
    return {hash_of(peer_, from, size_class), number_ | parts << last_shift};
  }

  const range where_;
  const peer_id peer_;
  const std::uint64_t number_;

 public:
  const unsigned size_class;
  const bool two;
};

hit_table::layout::layout(const memory& of) noexcept
    : slots(of.slots_),
      home_shift(62 - of.step_),
      tag_from(home_shift - (extra_bits - (of.step_ - smallest_step) % extra_bits)) {}

unsigned hit_table::next_step() const noexcept { return tables_.empty() ? smallest_step : tables_.back().step_ + 1; }

// Moves later slots of the run on by one, the last one first, so that a concurrent reader misses none. Slots with the
// same part of the hash keep the order in which they were inserted.
[[gnu::always_inline]] inline hit_table::outcome hit_table::layout::put(const place& at) noexcept {
  const auto tag = tag_of(at.hash);
  const auto next_tag = tag + (std::uint64_t{1} << tag_shift);
  auto* const home = slots + home_of(at.hash);
  auto* to = home;
  auto passed = to->load(std::memory_order_relaxed);
  while (passed != 0 && is_before(passed, next_tag)) passed = (++to)->load(std::memory_order_relaxed);
  auto* end = to;
  for (; passed != 0; passed = end->load(std::memory_order_relaxed)) ++end;
  PINFOLD_ASSERT(end < slots + homes() + slots_behind, "a run of slots ends in the table: the very last slot is empty");
  if (end > home + farthest && (to > home + farthest || any_at_farthest(to, end))) [[unlikely]]
    return outcome::no_room;
  for (; end != to; --end) end->store((end - 1)->load(std::memory_order_relaxed), std::memory_order_release);
  to->store(at.slot | tag, std::memory_order_release);
  const bool behind = to >= home + crowd && ((to - crowd)->load(std::memory_order_relaxed) ^ tag) >> tag_shift == 0;
  return behind ? outcome::behind_others : outcome::put;
}

// Returns whether a slot in the range cannot move on.
[[gnu::noinline]] bool hit_table::layout::any_at_farthest(const std::atomic<std::uint64_t>* from,
                                                          const std::atomic<std::uint64_t>* to) const noexcept {
  for (; from != to; ++from) {
    const auto index = static_cast<std::size_t>(from - slots);
    if (index - home_at(index, from->load(std::memory_order_relaxed)) == farthest) return true;
  }
  return false;
}

// Closes the gap by moving later slots of the same run back, up to a slot that is at its home. A concurrent reader may
// miss a moving slot, and then looks up under the mutex.
[[gnu::always_inline]] inline void hit_table::layout::take_out(const place& at) noexcept {
  const auto gone = at.slot | tag_of(at.hash);
  auto gap = home_of(at.hash);
  while (slots[gap].load(std::memory_order_relaxed) != gone) {
    PINFOLD_ASSERT(gap < home_of(at.hash) + farthest, "the place that is taken out is near its home");
    ++gap;
  }
  for (;; ++gap) {
    const auto moved = slots[gap + 1].load(std::memory_order_relaxed);
    if (moved == 0 || home_at(gap + 1, moved) == gap + 1) break;
    slots[gap].store(moved, std::memory_order_release);
  }
  slots[gap].store(0, std::memory_order_release);
}

[[gnu::always_inline]] inline hit_table::outcome hit_table::put(const place& at) noexcept {
  const auto done = now_.put(at);
  if (done == outcome::no_room) return done;
  ++used_;
  if (now_.home_of(at.hash) < moved_) [[unlikely]]
    put_into_next(at);
  return done;
}

// A slot is no farther from its home in the larger table than in the smaller one: between its home and the slot lie no
// more slots, and no fewer homes.
[[gnu::noinline]] void hit_table::put_into_next(place at) noexcept {
  PINFOLD_INVARIANT(next_.put(at) != outcome::no_room, "what has room in a table has room in a larger one");
}

[[gnu::always_inline]] inline void hit_table::take_out(const place& at) noexcept {
  PINFOLD_ASSERT(used_ > 0, "a table that counts no slot has none");
  now_.take_out(at);
  --used_;
  if (now_.home_of(at.hash) < moved_) [[unlikely]]
    next_.take_out(at);
}

// Keeps a record in both of its places or in none.
[[gnu::noinline]] bool hit_table::put_second(const record& added) noexcept {
  const places at(added, imported_);
  if (put(at.second()) != outcome::no_room) return true;
  take_out(at.first());
  return false;
}

[[gnu::always_inline]] inline void hit_table::count(unsigned size_class) noexcept {
  if (++in_class_[size_class] > 1) return;
  const auto bit = std::uint64_t{1} << size_class;
  classes_.store(classes_.load(std::memory_order_relaxed) | bit, std::memory_order_release);
}

[[gnu::always_inline]] inline void hit_table::discount(unsigned size_class) noexcept {
  PINFOLD_ASSERT(in_class_[size_class] > 0, "the records of a class are counted");
  if (--in_class_[size_class] > 0) return;
  const auto bit = std::uint64_t{1} << size_class;
  classes_.store(classes_.load(std::memory_order_relaxed) & ~bit, std::memory_order_release);
}

bool hit_table::insert(record* added) noexcept {
  if (used_ >= full_from_) return false;
  PINFOLD_ASSERT(!added->is(record::listed), "a record is in the table once");
  const places at(*added, imported_);
  const auto done = put(at.first());
  if (done == outcome::no_room || (at.two && !put_second(*added))) [[unlikely]]
    return insert_under_key(*added, record::listed_alone);
  added->set(record::listed);
  count(at.size_class);
  if (done == outcome::behind_others) [[unlikely]]
    static_cast<void>(insert_under_key(*added, 0));
  return true;
}

void hit_table::erase(record* gone) noexcept {
  PINFOLD_ASSERT(gone->is(record::listed), "only a record in the table leaves it");
  const bool alone = gone->is(record::listed_alone);
  if (gone->is(record::listed_as)) [[unlikely]]
    erase_under_key(*gone);
  if (alone) [[unlikely]]
    return;
  const places at(*gone, imported_);
  take_out(at.first());
  if (at.two) take_out(at.second());
  gone->clear(record::listed);
  discount(at.size_class);
}

namespace {

// The bits of the record's word are 0 without another key.
constexpr std::uint32_t bits_of(unsigned key) noexcept { return (key + 1) << record::listed_shift; }
unsigned key_of(const record& listed) noexcept {
  const auto bits = listed.word.load(std::memory_order_relaxed) & record::listed_as;
  return (bits >> record::listed_shift) - 1;
}

}  // namespace

hit_table::place hit_table::place_under(const record& one, key which) const noexcept {
  const auto peer = imported_ ? detail::imported_part_of(one).peer : peer_id{};
  return {hash_under(peer, one.covered(), which),
          reinterpret_cast<std::uintptr_t>(&one) >> record_shift | parts_under_key};
}

[[gnu::noinline]] bool hit_table::insert_under_key(record& added, std::uint32_t as) noexcept {
  for (const auto which : {by_page, by_begin, by_range}) {
    if (put(place_under(added, which)) == outcome::no_room) continue;
    added.set(record::listed | bits_of(which) | as);
    count(which);
    return true;
  }
  return false;
}

[[gnu::noinline]] void hit_table::erase_under_key(record& gone) noexcept {
  const auto which = static_cast<key>(key_of(gone));
  take_out(place_under(gone, which));
  gone.clear(record::listed_as | (gone.is(record::listed_alone) ? record::listed | record::listed_alone : 0));
  discount(which);
}

void hit_table::grow(memory larger) noexcept {
  will_grow_ = static_cast<bool>(larger);
  if (!larger) return;
  PINFOLD_ASSERT(!growing(), "a table grows one step at a time");
  PINFOLD_ASSERT(larger.step_ == next_step() && tables_.size() < tables_.capacity(),
                 "each table is the next larger one, and has its place");
  tables_.push_back(std::move(larger));
  next_ = layout(tables_.back());
  if (used_ == 0) change_over();
}

void hit_table::move() noexcept {
  PINFOLD_ASSERT(growing() && moved_ < now_.homes(), "slots are left to be moved");
  const auto end = std::min(moved_ + homes_at_once, now_.homes());
  if (next_.tag_from == now_.tag_from) {
    copy(end);
  } else {
    read_again(end);
  }
  moved_ = end;
  if (end == now_.homes()) change_over();
}

// Calls `each(slot, home)` for the slots with the next homes, up to `end`, and their homes in the larger table: half of
// such a home is the home in the smaller table. A slot at index i has at most the home i, and 2i + 1 in the larger
// table.
template <class F>
[[gnu::always_inline]] inline void hit_table::for_each_next(std::size_t end, F&& each) const noexcept {
  const auto* const slots = now_.slots;
  const auto shift = tag_shift + now_.home_shift - now_.tag_from - 1;
  const auto begin = moved_;
  for (auto i = begin;; ++i) {
    const auto slot = slots[i].load(std::memory_order_relaxed);
    if (slot == 0) {
      if (i >= end) return;
      continue;
    }
    const auto last_home = 2 * i + 1;
    const auto home = last_home - ((last_home - (slot >> shift)) & home_mask);
    if (home >= 2 * end) return;
    if (home >= 2 * begin) each(slot, home);
  }
}

// The slots that are already in the larger table have lower hashes.
void hit_table::copy(std::size_t end) noexcept {
  auto* const into = next_.slots;
  auto to = 2 * moved_;
  while (into[to].load(std::memory_order_relaxed) != 0) ++to;
  for_each_next(end, [&](std::uint64_t slot, std::size_t home) {
    to = std::max(to, home);
    into[to++].store(slot, std::memory_order_relaxed);
  });
}

void hit_table::read_again(std::size_t end) noexcept {
  for_each_next(end, [&](std::uint64_t slot, std::size_t /*home*/) {
    const record& one = *record_of(slot);
    put_into_next(is_under_key(slot) ? place_under(one, static_cast<key>(key_of(one)))
                                     : places(one, imported_).of(slot));
  });
}

// Readers of the old table find nothing there, which is harmless: the kernel gets back its pages, not its addresses.
void hit_table::change_over() noexcept {
  PINFOLD_ASSERT(growing() && (used_ == 0 || moved_ == now_.homes()), "the larger table has all slots");
  now_ = std::exchange(next_, {});
  moved_ = 0;
  crowded_from_ = now_.homes() / 4 * 3;
  full_from_ = now_.homes() / 8 * 7;
  will_grow_ = false;
  table_.store(now_.word(), std::memory_order_release);
  if (tables_.size() < 2) return;
  const auto& old = tables_[tables_.size() - 2];
  ::madvise(old.slots_, bytes_of(old.step_), MADV_DONTNEED);
}

std::size_t hit_table::bytes() const noexcept { return tables_.empty() ? 0 : bytes_of(tables_.back().step_); }

}  // namespace pinfold::index
