// SPDX-License-Identifier: BSD-3-Clause
// The parallel-opens case: the time that many slow opens take together. A cache that opens under its lock takes their
// sum.
#include "cli/progress.hpp"
#include "perf/import/import.hpp"
#include "perf/measure.hpp"
#include "perf/slow_importer.hpp"

#include <pinfold/import_cache.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <span>
#include <thread>
#include <utility>

namespace tool {
namespace {

using slow_cache = pinfold::import_cache<slow_importer>;
using acquired = pinfold::result<slow_cache::lease>;

constexpr std::chrono::milliseconds default_open_time{50};

std::chrono::milliseconds delay_of(const import_options& options) {
  return options.open_ms ? std::chrono::milliseconds(*options.open_ms) : default_open_time;
}

std::vector<acquired> acquire_all(slow_cache& cache, const std::vector<message>& messages, unsigned threads) {
  std::vector<acquired> leases(messages.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (auto i = next.fetch_add(1, std::memory_order_seq_cst); i < messages.size();
         i = next.fetch_add(1, std::memory_order_seq_cst)) {
      const auto& wanted = messages[i];
      leases[i] = cache.acquire(wanted.peer, wanted.handle, wanted.handle.base, wanted.size);
    }
  };
  std::vector<std::jthread> others;
  for (unsigned number = 1; number < threads; ++number) others.emplace_back(work);
  work();
  others.clear();
  return leases;
}

std::uint64_t count_errors(const std::vector<acquired>& leases, const std::vector<message>& messages) {
  std::uint64_t errors = 0;
  for (std::size_t i = 0; i < leases.size(); ++i) {
    if (!leases[i]) {
      if (errors++ == 0) report_error("pinfold", leases[i].error());
      continue;
    }
    const std::span bytes(static_cast<const std::byte*>(leases[i]->data()), messages[i].size);
    if (!holds(bytes, messages[i].seed)) ++errors;
  }
  return errors;
}

struct opens_run {
  double seconds;
  std::uint64_t errors;
};

opens_run open_once(const import_run& run, const std::vector<message>& messages, unsigned threads) {
  std::atomic<unsigned> begun{0};
  slow_cache cache(slow_importer(run.importer(), delay_of(run.options), begun), run.options.cache);
  std::vector<acquired> leases;
  const auto took = time_of([&] { leases = acquire_all(cache, messages, threads); });
  return {static_cast<double>(took) * 1e-9, count_errors(leases, messages)};
}

json opens_row(const import_run& run, std::size_t size, const std::vector<message>& messages, unsigned threads,
               progress_bar& progress) {
  std::vector<double> seconds;
  std::uint64_t errors = 0;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    const auto once = open_once(run, messages, threads);
    seconds.push_back(once.seconds);
    errors += once.errors;
    progress.step();
  }
  auto row = run.row("pinfold", size, threads);
  row["opens"] = messages.size();
  row["open_ms"] = delay_of(run.options).count();
  row["seconds"] = median_by(std::move(seconds), std::identity{});
  row["errors"] = errors;
  return row;
}

json run_parallel_opens(const import_run& run) {
  const std::set<unsigned> thread_counts{1, run.options.threads.value_or(4)};
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * run.options.repeats * thread_counts.size());
  for (const auto size : run.options.sizes) {
    const auto messages = run.provide(run.options.opens, size);
    for (const auto threads : thread_counts) {
      rows.push_back(opens_row(run, size, messages, threads, progress));
      keep_rows(rows);
    }
    run.take_back(messages.size());
  }
  return rows;
}

std::vector<column> parallel_opens_columns() {
  return with_errors({size("#bytes", "size"), words("subject", "subject"), count("#opens", "opens"),
                      count("each[ms]", "open_ms"), count("threads", "threads"), number("total[s]", "seconds", 1, 3)});
}

}  // namespace

const perf_case<import_run> parallel_opens_case{"parallel-opens", run_parallel_opens, parallel_opens_columns, "64K"};

}  // namespace tool
