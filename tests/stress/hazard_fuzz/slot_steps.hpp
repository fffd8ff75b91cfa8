// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Steps of a thread on slots: look-ups, an event, look-ups.
#pragma once

#include "events.hpp"
#include "look_up.hpp"

#include <chrono>
#include <optional>
#include <thread>

namespace pinfold::testing::hazard_fuzz {

/// The steps of one thread.
class slot_steps {
 public:
  slot_steps(run& in, unsigned thread, held_leases& held) : in_(in), thread_(thread), held_(held) {}

  /// Takes one step on a slot of this thread, or on a shared one, if no other thread has it.
  void step_of(std::uint64_t number, choices& random) {
    const bool own = random.one_in(2);
    const auto which = random.number();
    if (own) return on(in_.own_slot(thread_, which % run::own_slots), number, random);
    slot& shared = in_.shared_slot(which % run::shared_slots);
    const std::unique_lock taken(shared.owner, std::try_to_lock);
    if (taken) on(shared, number, random);
  }

  /// Returns an event of that slot that the monitors claim to see; nothing when several tries found none.
  [[nodiscard]] std::optional<chosen_event> choose(const slot& of, choices& random) const {
    for (int tries = 0; tries < 64; ++tries) {
      const auto what = static_cast<memory_event>(random.below(event_count));
      const auto via = static_cast<mechanism>(random.below(mechanism_count));
      if (is_slow(via) && !random.one_in(8)) continue;
      if (!in_.only.allows(what) || !in_.only.allows(via)) continue;
      if (!may_be_generated(what, via, of.kind(), in_.by)) continue;
      const std::size_t odd = of.unit() == page_bytes && has_any_length(what) && random.one_in(8) ? 100 : 0;
      return chosen_event{what, via, units_of(of, random), odd};
    }
    return std::nullopt;
  }

 private:
  // Returns whether each call takes a process, or a ring's worker.
  static bool is_slow(mechanism via) {
    return via == mechanism::other_process || via == mechanism::vfork_libc || via == mechanism::vfork_inline;
  }
  static bool has_any_length(memory_event what) {
    return what == memory_event::unmap || what == memory_event::map_over || what == memory_event::dontneed;
  }

  void on(slot& of, std::uint64_t number, choices& random) {
    if (random.one_in(48)) of.demolish();
    if (!of.is_mapped() && !build(of, random)) return;
    look_up look(in_, {in_.seed, thread_, number}, random, held_);
    const auto by = in_.registered.get(random.number());
    if (by == nullptr) std::this_thread::sleep_for(std::chrono::microseconds(100));  // another thread is making a cache
    for (auto i = random.below(3); i > 0; --i) look.any(of, asked(of, random), by);
    if (!of.mend()) return;
    const auto event = choose(of, random);
    if (event) cause(of, *event, number);
    if (random.one_in(3)) look.any(of, asked(of, random), other_or(by, random));
    if (random.one_in(8) || !of.mend()) return;  // left as it is, for the next thread
    for (auto i = 1 + random.below(2); i > 0; --i) look.any(of, asked(of, random), other_or(by, random));
    if (random.one_in(2)) held_.release_one(random.number());
  }

  std::shared_ptr<cache_and_device> other_or(const std::shared_ptr<cache_and_device>& usual, choices& random) {
    return random.one_in(4) ? in_.registered.get(random.number()) : usual;
  }

  void cause(slot& of, const chosen_event& event, std::uint64_t number) {
    const bool done = event_maker(of, in_.helper).cause(event);
    of.note({number, thread_, event.what, event.via, of.kind(), event.where, done, held_.any()});
    if (done) count(in_.done.events);
  }

  bool build(slot& of, choices& random) {
    const auto kind = static_cast<memory_kind>(random.below(kind_count));
    if (!in_.only.allows(kind)) return false;
    if (!in_.by.keeps(kind) && !random.one_in(3)) return false;
    const bool slow = kind == memory_kind::transparent_huge || kind == memory_kind::private_disk;
    if (slow && !random.one_in(3)) return false;
    if (kind == memory_kind::hugetlb && (&of != &in_.own_slot(0, 0) || !in_.enough_huge_pages)) return false;
    return of.build(kind);
  }

  /// Returns whole units of the slot's memory: all, the head, the tail, one, or any consecutive ones.
  static part units_of(const slot& of, choices& random) {
    const auto units = of.bytes() / of.unit(), unit = of.unit();
    switch (random.below(5)) {
      case 0: return {0, of.bytes()};
      case 1: return {0, (units + 1) / 2 * unit};
      case 2: return {units / 2 * unit, of.bytes()};
      case 3: {
        const auto one = random.below(units);
        return {one * unit, (one + 1) * unit};
      }
      default: {
        const auto first = random.below(units);
        return {first * unit, (first + 1 + random.below(units - first)) * unit};
      }
    }
  }

  /// Returns the part for a look-up: whole units, or any bytes of them.
  static part asked(const slot& of, choices& random) {
    auto where = units_of(of, random);
    if (!random.one_in(4)) return where;
    where.begin += 8 * random.below(page_bytes / 16);
    where.end -= 8 * random.below(page_bytes / 16);
    return where;
  }

  run& in_;
  unsigned thread_;
  held_leases& held_;
};

}  // namespace pinfold::testing::hazard_fuzz
