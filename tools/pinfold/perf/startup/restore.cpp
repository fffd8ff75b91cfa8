// SPDX-License-Identifier: BSD-3-Clause
// The restore case: many registrations are closed for a checkpoint, and registered again, those used most first.
#include "cli/progress.hpp"
#include "perf/local/local.hpp"
#include "perf/startup/mapped_range.hpp"
#include "perf/startup/register_all.hpp"
#include "perf/startup/simulated_driver.hpp"
#include "perf/startup/startup.hpp"

#include <pinfold/cache.hpp>

#include <cstdint>
#include <thread>
#include <utility>

namespace tool {
namespace {

constexpr std::size_t buffers = 2000;
constexpr std::size_t hot = buffers / 100;
constexpr std::size_t spread = 37;  // hot buffers are spread over the memory; shares no divisor with `buffers`
constexpr std::size_t default_bytes = std::size_t{10} << 30U;
constexpr int hits_of_hot = 100;

struct restored {
  double quiesce = 0;
  double hot = 0;  ///< until all hot buffers were registered
  double total = 0;
};

using cache_of_simulated = pinfold::cache<simulated_registrar>;

class memory_of_buffers {
 public:
  explicit memory_of_buffers(std::size_t bytes)
      : each_(bytes / buffers / 4096 * 4096), where_(mapped_range::reserve(bytes)) {}

  [[nodiscard]] void* buffer(std::size_t number) const noexcept {
    return reinterpret_cast<void*>(where_.where().begin + number * spread % buffers * each_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return each_; }

 private:
  std::size_t each_;
  mapped_range where_;
};

pinfold::result<void> fill(cache_of_simulated& cache, const memory_of_buffers& memory) {
  for (std::size_t number = 0; number < buffers; ++number)
    for (int hit = 0; hit <= (number < hot ? hits_of_hot : 0); ++hit)
      if (const auto lease = cache.acquire(memory.buffer(number), memory.bytes()); !lease)
        return tl::unexpected(lease.error());
  return {};
}

bool all_hot_are_there(cache_of_simulated& cache, const memory_of_buffers& memory) {
  for (std::size_t number = 0; number < hot; ++number)
    if (!cache.find(memory.buffer(number), memory.bytes())) return false;
  return true;
}

pinfold::result<restored> measure(const startup_run& run, unsigned workers, progress_bar& progress) {
  const memory_of_buffers memory(run.options.bytes.value_or(default_bytes));
  cache_of_simulated cache(simulated_registrar({.ns_per_byte = 0.1}), {.monitor = pinfold::monitor_choice::manual});
  if (auto filled = fill(cache, memory); !filled) return tl::unexpected(filled.error());
  restored seen;
  const stopwatch quiescing;
  if (auto quiet = cache.quiesce(); !quiet) return tl::unexpected(quiet.error());
  seen.quiesce = quiescing.seconds();
  const stopwatch restoring;
  auto restoration = cache.restore({.workers = workers});
  if (!restoration) return tl::unexpected(restoration.error());
  while (!all_hot_are_there(cache, memory) && !restoration->done())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  seen.hot = restoring.seconds();
  restoration->wait();
  seen.total = restoring.seconds();
  progress.step(bar_steps);
  if (auto failed = restoration->failure(); !failed) return tl::unexpected(failed.error());
  return seen;
}

json row_for(const startup_run& run, unsigned workers, progress_bar& progress) {
  auto row = run.row("simulated", "4k", run.options.bytes.value_or(default_bytes));
  row["registrations"] = buffers;
  row["workers"] = workers;
  std::vector<restored> runs;
  for (unsigned i = 0; i < run.options.repeats; ++i) {
    const auto seen = measure(run, workers, progress);
    if (!seen) return add_failure(row, seen.error()), row;
    runs.push_back(*seen);
  }
  const auto median = median_by(std::move(runs), &restored::total);
  row["quiesce_ns"] = rounded(median.quiesce * 1e9);
  row["hot_ns"] = rounded(median.hot * 1e9);
  row["total_ns"] = rounded(median.total * 1e9);
  row["errors"] = 0;
  return row;
}

json run_restore(const startup_run& run) {
  progress_bar progress(bar_steps * run.options.workers.size() * run.options.repeats);
  auto rows = json::array();
  for (const unsigned workers : run.options.workers) {
    rows.push_back(row_for(run, workers, progress));
    keep_rows(rows);
  }
  run.notes.emplace_back(
      "a driver simulated at 10 GB/s; hot: the 1 % of the buffers that had hits, registered again before the others");
  return rows;
}

std::vector<column> restore_columns() {
  return with_errors({count("workers", "workers"), count("#registrations", "registrations"), size("#bytes", "size"),
                      microseconds("quiesce[us]", "quiesce_ns", 0), microseconds("hot[us]", "hot_ns", 0),
                      microseconds("total[us]", "total_ns", 0)});
}

}  // namespace

const perf_case<startup_run> restore_case{"restore", run_restore, restore_columns, ""};

}  // namespace tool
