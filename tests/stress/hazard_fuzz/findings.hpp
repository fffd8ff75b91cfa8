// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The wrong leases that a run found, by their shape, and the amount of its work.
#pragma once

#include "claims.hpp"
#include "slot.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

/// The place of a finding in a run, from which it can be replayed.
struct occasion {
  std::uint64_t round_seed = 0;
  unsigned thread = 0;
  std::uint64_t step = 0;
};

/// How a wrong lease was detected.
struct wrong_lease {
  const char* look_up;   ///< acquire, find, batch
  const char* oracle;    ///< stamp, bytes
  std::string monitors;  ///< of the lease's cache
};

/// Returns the last event that took pages of the part; null when it is not among these steps.
inline const step* last_that_took(const std::vector<step>& steps, const part& asked) {
  const auto found = std::find_if(steps.rbegin(), steps.rend(), [&](const step& one) {
    return one.done && one.where.overlaps(asked) && destroys(one.what, one.to);
  });
  return found == steps.rend() ? nullptr : &*found;
}

inline std::string text_of(const step& one) {
  std::ostringstream text;
  text << name_of(one.what) << " by " << name_of(one.via) << " of " << name_of(one.to) << " pages "
       << one.where.begin / page_bytes << ".." << one.where.end / page_bytes << (one.done ? "" : " (refused)")
       << (one.leased ? ", leases out" : "") << ", thread " << one.thread << " step " << one.number;
  return text.str();
}

/// The findings of a run. Thread-safe.
class findings {
 public:
  /// Adds a lease on old memory of a slot, which the calling thread must own.
  void add(const occasion& when, const wrong_lease& what, const slot& of, const part& asked) {
    const auto steps = of.history();
    std::ostringstream shape, example;
    if (const auto* took = last_that_took(steps, asked); took != nullptr)
      shape << name_of(took->what) << " by " << name_of(took->via) << " of " << name_of(took->to);
    else
      shape << "an event of long ago, of " << name_of(of.kind());
    shape << ", " << what.look_up << " (" << what.monitors << ", " << what.oracle << ')';
    example << "asked for pages " << asked.begin / page_bytes << ".." << asked.end / page_bytes << '\n';
    for (const auto& one : steps) example << "      " << text_of(one) << '\n';
    add(when, shape.str(), example.str());
  }

  /// Adds a lease on old memory elsewhere in the program.
  void add(const occasion& when, const std::string& shape, const std::string& example) {
    const std::lock_guard guard(mutex_);
    auto& one = all_[shape];
    if (one.count++ == 0) one = {1, when, example};
  }

  [[nodiscard]] std::size_t count() const {
    const std::lock_guard guard(mutex_);
    std::size_t sum = 0;
    for (const auto& [shape, one] : all_) sum += one.count;
    return sum;
  }

  /// Prints the shapes, and an example of each of the first.
  void print(std::ostream& to) const {
    const std::lock_guard guard(mutex_);
    constexpr int most_examples = 8;
    int printed = 0;
    for (const auto& [shape, one] : all_) {
      to << "  stale " << one.count << " times: " << shape << '\n';
      if (printed++ >= most_examples) continue;
      to << "    first: PINFOLD_TEST_SEED=" << one.first.round_seed << ", thread " << one.first.thread << ", step "
         << one.first.step << ", " << one.example << '\n';
    }
  }

 private:
  struct entry {
    std::size_t count = 0;
    occasion first;
    std::string example;
  };
  mutable std::mutex mutex_;
  std::map<std::string, entry> all_;
};

/// The amount of work. A run that checks nothing is no test.
struct counters {
  std::atomic<std::uint64_t> steps{0}, fast_rounds{0}, events{0}, leases{0}, hits{0}, refused{0}, found{0}, sent{0},
      not_sent{0};

  void print(std::ostream& to) const {
    to << steps << " steps, " << fast_rounds << " fast rounds, " << events << " events, " << leases << " leases ("
       << hits << " hits, " << found << " by find, " << refused << " refused), bytes sent " << sent << " times ("
       << not_sent << " refused)\n";
  }
};

inline void count(std::atomic<std::uint64_t>& one, std::uint64_t by = 1) {
  one.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace pinfold::testing::hazard_fuzz
