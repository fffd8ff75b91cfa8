// SPDX-License-Identifier: BSD-3-Clause
#include "perf/speed/speed.hpp"

#include "cli/failure.hpp"
#include "perf/speed/c_interface.hpp"
#include "perf/speed/floors.hpp"
#include "perf/speed/import.hpp"
#include "perf/speed/subjects.hpp"

#include "bench/cases.hpp"

#include <exception>
#include <string>

namespace tool {
namespace {

void add_other_hits(json& rows, const bench::parameters& how) {
  bench::append(rows, bench::measure_hits<c_subject>(how));
  bench::append(rows, bench::measure_hits<three_caches_subject>(how));
  if (how.watched()) return;
  bench::append(rows, bench::measure_hits<import_subject>(how));
  bench::append(rows, bench::measure_hits<atomics_floor>(how));
  bench::append(rows, bench::measure_hits<record_floor>(how));
}

}  // namespace

json measure_pinfold(const bench::parameters& how) try {
  if (how.watched()) inline_subject(bench::region_set(1), {.monitors = how.monitors});  // throws if they are not proven
  auto rows = bench::measure<inline_subject, pausing_subject>(how);
  if (how.command == "hit") add_other_hits(rows, how);
  if (how.command == "memory") bench::append(rows, bench::measure_memory<import_subject>(how));
  if (!how.watched()) return rows;
  for (auto& row : rows) row["subject"] = row.at("subject").get<std::string>() + "/" + how.monitors;
  return rows;
} catch (const bench::cannot_be_measured&) {
  throw;
} catch (const std::exception& problem) {
  throw failure(problem.what());
}

}  // namespace tool
