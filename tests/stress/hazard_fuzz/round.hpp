// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One round: threads, their steps, and the disturbances, until a given time.
#pragma once

#include "disturbances.hpp"
#include "fast_steps.hpp"
#include "program_steps.hpp"
#include "slot_steps.hpp"

#include <chrono>
#include <thread>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

using std::chrono::steady_clock;

/// Takes the steps of one thread.
inline void take_steps(run& in, unsigned thread) {
  held_leases held;
  slot_steps slots(in, thread, held);
  fast_steps fast(in, thread);
  program_steps program(in, thread);
  for (std::uint64_t number = 0; !in.over.load(std::memory_order_relaxed); ++number) {
    choices random(in.seed, thread, number);
    const auto which = random.below(64);
    if (which == 63 && in.only.allows(activity::program))
      program.step_of(number, random);
    else if (which < in.fast_in_64 && in.only.allows(activity::fast))
      fast.step_of(number, random);
    else if (in.only.allows(activity::slots))
      slots.step_of(number, random);
    count(in.done.steps);
    in.guard.beat();
  }
}

/// Runs a round; takes the main thread's steps beside the others.
inline void run_round(run& in, std::chrono::milliseconds time) {
  constexpr unsigned disturber = 100, main_thread = 101;
  disturbances beside(in);
  std::thread([&] {
    choices first(in.seed, disturber, 0);
    beside.make_caches(first);
  }).join();
  const auto until = steady_clock::now() + time;
  std::jthread other([&] {
    for (std::uint64_t number = 1; !in.over.load(std::memory_order_relaxed); ++number) {
      choices random(in.seed, disturber, number);
      if (in.only.allows(activity::disturb) && in.disturbed) beside.step_of(random);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::vector<std::jthread> all;
  for (unsigned i = 0; i < in.threads; ++i) all.emplace_back([&in, i] { take_steps(in, i); });
  program_steps program(in, main_thread);
  for (std::uint64_t number = 0; steady_clock::now() < until; ++number) {
    choices random(in.seed, main_thread, number);
    if (in.only.allows(activity::program)) program.step_of_main_thread(number, random);
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + random.below(8)));
  }
  in.over.store(true, std::memory_order_relaxed);
}

}  // namespace pinfold::testing::hazard_fuzz
