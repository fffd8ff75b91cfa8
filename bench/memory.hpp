// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that a subject needs for its cached regions.
#pragma once

#include "rows.hpp"
#include "subject.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <malloc.h>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace bench {

/// Returns the bytes of memory that this process has written to and that no file backs: heap and mappings.
[[nodiscard]] inline std::uint64_t anonymous_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Anonymous:")) return std::stoull(line.substr(line.find(':') + 1)) * 1024;
  }
  throw std::runtime_error("/proc/self/smaps_rollup does not report the memory of this process");
}

/// Runs `work()` in a process of its own, whose heap has not grown yet, and returns its result.
template <class Work>
auto in_child(Work work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("cannot create a pipe to a child process");
  std::fflush(nullptr);
  const auto parent = ::getpid();
  const auto child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork a child process");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it ended before
    int status = 1;
    try {
      const auto answer = work();
      status = ::write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s\n", problem.what());
    }
    ::_exit(status);
  }
  ::close(ends[1]);
  decltype(work()) answer{};
  const bool got = ::read(ends[0], &answer, sizeof answer) == sizeof answer;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!got || status != 0) throw std::runtime_error("the process that measures memory has failed");
  return answer;
}

/// The number of cached regions, and the memory that they take.
struct memory_use {
  std::uint64_t regions = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] double bytes_per_region() const noexcept {
    return static_cast<double>(bytes) / static_cast<double>(regions);
  }
};

/// Registers as many of the regions as there is time for, in the order of addresses. Throws when a request fails.
template <class Subject>
memory_use memory_for(const region_set& regions, double time_limit) {
  return in_child([&] {
    const auto all = each_once(regions, false);
    ::malloc_trim(0);
    const auto before = anonymous_bytes();
    Subject cache(regions, setup{});
    auto user = cache.user();
    tally seen;
    const auto cached = use_until(deadline(time_limit), user, all, seen);
    if (seen.errors != 0) throw std::runtime_error("regions were refused");
    std::uint64_t other = before;
    if constexpr (requires { cache.bytes_of_requests(); }) other += cache.bytes_of_requests();
    const auto after = anonymous_bytes();
    return memory_use{cached, after > other ? after - other : 0};
  });
}

/// Returns the median of several measurements, by the memory of a region. Repeats only as long as there is time.
template <class Subject>
memory_use median_memory_for(const parameters& how, const region_set& regions) {
  const deadline end(how.time_limit);
  std::vector<memory_use> runs;
  while (runs.empty() || (runs.size() < how.repeats && !end.passed()))
    runs.push_back(memory_for<Subject>(regions, how.time_limit));
  return median_by(std::move(runs), &memory_use::bytes_per_region);
}

/// Measures the memory of regions that are registered in the order of addresses.
template <subject Subject>
json measure_memory(const parameters& how) {
  auto rows = json::array();
  for (const auto count : how.regions) {
    for (const auto placed : {layout::aligned, layout::malloc_like}) {
      const auto used = median_memory_for<Subject>(how, region_set(count, placed));
      auto row = row_of(Subject::name, count, 1, "sequential");
      row["layout"] = name_of(placed);
      row["cached"] = used.regions;
      row["bytes"] = used.bytes;
      row["bytes_per_region"] = rounded(used.bytes_per_region());
      row["errors"] = 0;
      add_row(how, rows, std::move(row));
    }
  }
  return rows;
}

}  // namespace bench
