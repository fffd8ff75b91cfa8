// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Thousands of rounds of one cheap event and one look-up. They find races between threads that cause events at the
/// same time, each of its own memory, and events that happened before the memory came from another thread.
#pragma once

#include "events.hpp"
#include "look_up.hpp"

namespace pinfold::testing::hazard_fuzz {

/// The fast steps of one thread.
class fast_steps {
 public:
  fast_steps(run& in, unsigned thread) : in_(in), thread_(thread) {}

  /// Runs some hundreds or thousands of rounds, on memory of this thread, or on memory that threads hand over to each
  /// other.
  void step_of(std::uint64_t number, choices& random) {
    const auto what = random.one_of(events);
    const auto via = random.one_of(mechanisms);
    const bool own = !random.one_in(4);
    slot& of = own ? in_.own_small_slot(thread_) : in_.shared_small_slot(random.below(run::shared_small_slots));
    const auto by = in_.registered.get(random.number());
    if (by == nullptr || !in_.only.allows(what) || !in_.only.allows(via)) return;
    if (!may_be_generated(what, via, memory_kind::anonymous, in_.by)) return;
    number_ = number;
    const auto rounds = 200 + random.below(2000);
    for (std::size_t i = 0; i < rounds && !in_.over.load(std::memory_order_relaxed); ++i) {
      const std::unique_lock taken(of.owner);
      const bool causes = own || random.one_in(2);
      if (!round(of, {what, via, {}, 0}, causes, *by)) return;
    }
    count(in_.done.fast_rounds, rounds);
    count(in_.done.leases, rounds);
    count(in_.done.events, own ? rounds : rounds / 2);
  }

 private:
  static constexpr std::array events{memory_event::dontneed, memory_event::dontneed, memory_event::unmap,
                                     memory_event::map_over};
  static constexpr std::array mechanisms{mechanism::libc, mechanism::inline_syscall, mechanism::inline_syscall,
                                         mechanism::io_uring};

  bool round(slot& of, chosen_event event, bool causes, cache_and_device& by) {
    if (!of.is_mapped() && !of.build(memory_kind::anonymous)) return false;
    const part all{0, of.bytes()};
    event.where = all;
    if (causes && !event_maker(of, in_.helper).cause(event)) return false;
    if (causes) of.note({number_, thread_, event.what, event.via, of.kind(), all, true, false});
    if (!of.mend()) return false;
    const auto got = by.cache().acquire(of.at(), of.bytes());
    if (got && of.went_after(got->registration().stamp, all))
      in_.found.add({in_.seed, thread_, number_}, {"acquire", "fast stamp", by.monitors()}, of, all);
    return true;
  }

  run& in_;
  unsigned thread_;
  std::uint64_t number_ = 0;
};

}  // namespace pinfold::testing::hazard_fuzz
