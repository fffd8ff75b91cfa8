// SPDX-License-Identifier: BSD-3-Clause
// The copy case: whole messages read through the cache, without it, and from mappings that stay open.
#include "cli/progress.hpp"
#include "peer/host_target.hpp"
#include "perf/import/import.hpp"
#include "perf/verified_copies.hpp"

#include <barrier>
#include <cstddef>
#include <thread>
#include <utility>

namespace tool {
namespace {

// An uncached thread gets an importer of its own, since one importer refuses to open a handle twice.
copy_tally run_threads(const import_run& run, const std::vector<message>& messages, const char* subject,
                       unsigned count) {
  memfd_cache cache(run.importer(), run.options.cache);
  std::vector<copy_tally> parts(count);
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  const auto work = [&](unsigned number) {
    const auto how = make_reader<message, host_target>(subject, cache, [&] { return run.importer(); });
    host_target into(messages.front().size);
    verified_copies copies(*how, into);
    const bool warm = copies.warm_up(messages);
    start.arrive_and_wait();
    if (warm) copies.run(run.options, messages);
    parts[number] = std::move(copies.done);
  };
  std::vector<std::jthread> others;
  for (unsigned number = 1; number < count; ++number) others.emplace_back(work, number);
  work(0);
  others.clear();
  for (unsigned number = 1; number < count; ++number) parts[0].add(parts[number]);
  return std::move(parts[0]);
}

json copy_row(const import_run& run, const char* subject, std::size_t size, unsigned threads,
              const copy_runs& results) {
  auto row = run.row(subject, size, threads);
  const auto median = median_run(results.runs);
  row["buffers"] = run.options.buffers;
  add_latency(row, median);
  if (median.average > 0) row["gb_per_s"] = rounded(threads * static_cast<double>(size) / median.average);
  row["errors"] = results.errors;
  return row;
}

json run_copy(const import_run& run) {
  const auto threads = run.options.threads.value_or(1);
  const auto count = run.options.peers * run.options.buffers;
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * run.options.repeats * copy_subjects.size());
  for (const auto size : run.options.sizes) {
    const auto messages = run.provide(count, size);
    const auto results = copies_in_turn(
        run.options, progress, [&](const char* subject) { return run_threads(run, messages, subject, threads); });
    run.take_back(count);
    const auto uncached = median_run(results.at("uncached").runs).average;
    for (const char* subject : copy_subjects) {
      rows.push_back(copy_row(run, subject, size, threads, results.at(subject)));
      const auto average = median_run(results.at(subject).runs).average;
      if (average > 0) rows.back()["speedup"] = rounded(uncached / average);
    }
    keep_rows(rows);
  }
  return rows;
}

}  // namespace

std::vector<column> copy_columns() {
  return with_errors({size("#bytes", "size"), words("subject", "subject"), count("#iterations", "iterations"),
                      microseconds("p50[us]", "p50_ns", 2), microseconds("p99[us]", "p99_ns", 2),
                      microseconds("p99.9[us]", "p999_ns", 2), microseconds("average[us]", "ns_per_op", 2),
                      number("GB/s", "gb_per_s", 1, 2), number("x uncached", "speedup", 1, 1)});
}

const perf_case<import_run> copy_case{"copy", run_copy, copy_columns, "4K,64K,1M"};

}  // namespace tool
