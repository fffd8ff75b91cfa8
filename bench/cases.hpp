// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// All the measurements of a subject.
#pragma once

#include "batch.hpp"
#include "evict.hpp"
#include "handover.hpp"
#include "hit.hpp"
#include "memory.hpp"
#include "miss.hpp"
#include "monitor.hpp"
#include "slow.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace bench {

/// Returns the rows of one command. `SlowSubject` is the same subject with delays. Throws when something cannot be
/// measured at all.
template <subject Subject, subject SlowSubject = Subject>
json measure(const parameters& how) {
  if (how.command == "hit") return measure_hits<Subject>(how);
  if (how.command == "memory") return measure_memory<Subject>(how);
  if (how.command == "evict") return measure_eviction<Subject>(how);
  if (how.command == "batch") return measure_batches<Subject>(how);
  if (how.command == "scale") {
    auto rows = measure_scaling<Subject>(how);
    append(rows, measure_handovers<Subject>(how));
    return rows;
  }
  if (how.command == "miss") {
    auto rows = measure_misses<Subject>(how);
    if (!how.refill && !how.watched()) append(rows, measure_slow<SlowSubject>(how));
    return rows;
  }
  if constexpr (unmapping_subject<Subject>) {
    if (how.command == "monitor") return measure_monitor<Subject>(how);
  }
  throw std::invalid_argument("unknown measurement: " + how.command);
}

}  // namespace bench
