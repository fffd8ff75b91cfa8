// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cost to a program of its cache's monitors: at the unmapping, and at the hits beside it.
#pragma once

#include "monitor_hits.hpp"
#include "monitor_unmap.hpp"
#include "rows.hpp"

namespace bench {

[[nodiscard]] inline bool wants(const parameters& how, const char* which) {
  return how.only.empty() || how.only == which;
}

/// Returns the rows of a measurement; one that cannot be done is a row that says why.
template <class Measure>
json row_or_reason(const char* which, const char* subject, std::size_t regions, Measure&& measure) {
  json begun{{"case", which}, {"subject", subject}, {"regions", regions}, {"threads", 1}};
  try {
    return measure(begun);
  } catch (const cannot_be_measured& why) {
    return json::array({skipped_row(begun, why)});
  }
}

/// Measures the cases of one subject, except hits without events: those are compared with others in one process.
template <unmapping_subject Subject>
json measure_unmapping(const parameters& how, const process_without_cache& without) {
  auto rows = json::array();
  const auto add = [&](const char* which, std::size_t regions, auto&& measure) {
    if (wants(how, which)) add_rows(how, rows, row_or_reason(which, Subject::name, regions, measure));
  };
  const auto cached = how.regions.front();
  add("unrelated-munmap", cached, [&](const json& begun) { return unrelated_unmaps<Subject>(how, begun); });
  add("big-munmap", how.many, [&](const json& begun) { return big_unmap<Subject>(how, without, begun); });
  add("cached-munmap", 1, [&](const json& begun) { return cached_unmaps<Subject>(how, without, begun); });
  return rows;
}

template <unmapping_subject Subject>
json measure_hits_beside(const parameters& how) {
  constexpr const char* which = "hits-beside-munmap";
  auto rows = json::array();
  if (!wants(how, which)) return rows;
  add_rows(how, rows, row_or_reason(which, Subject::name, 100, [&](const json& begun) {
             return hits_beside<Subject>(how, begun);
           }));
  return rows;
}

/// Measures all cases of a subject that is alone in its process.
template <unmapping_subject Subject>
json measure_monitor(const parameters& how) {
  const process_without_cache without;
  auto rows = measure_unmapping<Subject>(how, without);
  append(rows, measure_hits_beside<Subject>(how));
  if (wants(how, "hits")) add_rows(how, rows, compare_hits(how, lanes_of<Subject>()));
  return rows;
}

}  // namespace bench
