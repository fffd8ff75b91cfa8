// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The order of the table, and what it leaves out.
#pragma once

#include "top/sample.hpp"

#include <string>
#include <vector>

namespace tool::top {

/// Returns the names of the orders; the first is the default.
[[nodiscard]] const std::vector<std::string>& orders();

/// Sorts the caches of each process, and the processes by their first cache. `pid`, `command` and `cache` go up,
/// `hits` has the lowest hit rate first, all others the highest value.
void sort(sample& taken, const std::string& order);

/// What is shown.
struct wanted {
  std::string text;    ///< in the pid, the command, the state, or the name or registrar of the cache, in either case
  bool ended = false;  ///< also caches that ended in processes that run
};

/// Removes the rest: processes without a match in themselves or in one of their caches, and of the others the caches
/// without a match, unless the process itself has one.
void filter(sample& taken, const wanted& what);

}  // namespace tool::top
