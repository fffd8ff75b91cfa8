// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/simulate.hpp"

#include <cmath>
#include <random>

namespace tool {
simulation::simulation(const workload& of, policy& chooser, std::size_t budget)
    : objects_(of.objects), chooser_(chooser), budget_(budget), cached_(of.objects.size()) {}

void simulation::request(std::uint32_t one) {
  if (cached_[one]) {
    ++result_.hits;
    chooser_.hit(one);
    return;
  }
  ++result_.misses;
  result_.cost_ns += objects_[one].open_ns;
  if (objects_[one].room > budget_) {
    ++result_.too_large;
    result_.cost_ns += objects_[one].close_ns;
    return;
  }
  while (used_ + objects_[one].room > budget_) evict();
  used_ += objects_[one].room;
  cached_[one] = true;
  chooser_.insert(one);
}

void simulation::evict() {
  const auto gone = chooser_.victim();
  ++result_.evictions;
  result_.cost_ns += objects_[gone].close_ns;
  used_ -= objects_[gone].room;
  cached_[gone] = false;
}

void count_room(workload& of, bool in_entries) noexcept {
  for (auto& one : of.objects) one.room = in_entries ? 1 : one.bytes;
}

void misjudge(workload& of, double factor, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (auto& one : of.objects) {
    const double share = static_cast<double>(generator() >> 11) * 0x1p-53;
    one.misjudged = std::pow(factor, 2 * share - 1);
  }
}

replay_result simulate(const workload& of, policy& chooser, std::size_t budget) {
  simulation run(of, chooser, budget);
  for (const auto one : of.requests) run.request(one);
  return run.result();
}

}  // namespace tool
