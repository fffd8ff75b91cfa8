// SPDX-License-Identifier: BSD-3-Clause
// The undisturbed case: hits of one buffer on one thread, while workers register other memory of the same cache.
#include "cli/progress.hpp"
#include "perf/local/local.hpp"
#include "perf/local/uring.hpp"
#include "perf/startup/mapped_range.hpp"
#include "perf/startup/register_all.hpp"
#include "perf/startup/simulated_driver.hpp"
#include "perf/startup/startup.hpp"
#include "perf/startup/timed_registrar.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <thread>
#include <utility>

namespace tool {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20U;
constexpr std::size_t one_gib = std::size_t{1} << 30U;
constexpr std::size_t most_samples = 5'000'000;
constexpr int hits_for_sample = 16;
constexpr double ns_per_byte = 0.1;  // 10 GB/s

struct undisturbed_stage {
  const startup_run& run;
  unsigned workers;
  progress_bar& progress;
};

// Times every 16th hit until `stop`, at least one, and keeps the latest samples. The first acquire registers the
// buffer, and is not timed.
template <class Cache>
pinfold::result<latency> time_hits(Cache& cache, void* buffer, const std::atomic<bool>& stop) {
  const auto hit = [&] { return cache.acquire(buffer, buffer_bytes).map([](const auto& lease) { (void)lease; }); };
  nanoseconds samples;
  samples.reserve(most_samples);
  auto outcome = hit();
  for (std::size_t number = 0; outcome && (number == 0 || !stop.load(std::memory_order_relaxed)); ++number) {
    for (int i = 1; i < hits_for_sample; ++i) outcome = hit();
    const auto took = time_of([&] { outcome = hit(); });
    if (number < most_samples) samples.push_back(took);
    samples[number % most_samples] = took;
  }
  if (!outcome) return tl::unexpected(outcome.error());
  return summarise(std::move(samples));
}

// Returns the latency of hits in a cache while `work` goes on in it.
template <class R, class Work>
pinfold::result<latency> hits_during(R registrar, Work&& work) {
  const auto buffer = mapped_range::map(buffer_bytes, false);
  pinfold::cache cache{timed_registrar<R>(std::move(registrar)), {.monitor = pinfold::monitor_choice::manual}};
  std::atomic<bool> stop{false};
  pinfold::result<latency> seen;
  pinfold::result<void> done;
  {
    std::jthread hitting([&] { seen = time_hits(cache, reinterpret_cast<void*>(buffer.where().begin), stop); });
    done = work(cache);
    stop.store(true, std::memory_order_seq_cst);
  }
  if (!done) return tl::unexpected(done.error());
  return seen;
}

simulated_registrar simulated() { return simulated_registrar({.ns_per_byte = ns_per_byte}); }

pinfold::result<latency> during_nothing(const undisturbed_stage& on) {
  return hits_during(simulated(), [&](auto&) -> pinfold::result<void> {
    std::this_thread::sleep_for(std::chrono::duration<double>(on.run.options.seconds));
    on.progress.step(bar_steps);
    return {};
  });
}

template <class Cache>
pinfold::result<void> register_range(Cache& cache, const undisturbed_stage& on, const pinfold::range& memory,
                                     pinfold::prefault_choice prefault) {
  const pinfold::background_options how{
      .piece_bytes = on.run.options.piece, .workers = on.workers, .prefault = prefault};
  return register_all(cache, memory, how, on.progress).map([](const timeline&) {});
}

// As much as the simulated driver registers in the time of a measurement.
std::size_t simulated_bytes(const undisturbed_stage& on) {
  const auto bytes = on.run.options.seconds * 1e9 / ns_per_byte * on.workers;
  return on.run.options.bytes.value_or(static_cast<std::size_t>(std::ceil(bytes / static_cast<double>(one_gib))) *
                                       one_gib);
}

pinfold::result<latency> during_simulated(const undisturbed_stage& on) {
  const auto memory = mapped_range::reserve(simulated_bytes(on));
  return hits_during(simulated(), [&](auto& cache) {
    return register_range(cache, on, memory.where(), pinfold::prefault_choice::none);
  });
}

pinfold::result<latency> during_uring(const undisturbed_stage& on) {
  const auto ring = uring::open(8, 0);
  if (!ring) return tl::unexpected(ring.error());
  auto registrar = (*ring)->registrar();
  if (!registrar) return tl::unexpected(registrar.error());
  const auto memory = mapped_range::map(on.run.real_bytes(), false);
  return hits_during(std::move(*registrar), [&](auto& cache) {
    return register_range(cache, on, memory.where(), pinfold::prefault_choice::pages);
  });
}

struct other_work {
  const char* meanwhile;
  const char* registrar;
  pinfold::result<latency> (*measure)(const undisturbed_stage&);
};

constexpr std::array subjects{other_work{"nothing", "simulated", during_nothing},
                              other_work{"simulated driver", "simulated", during_simulated},
                              other_work{"io_uring, workers prefault", "io_uring", during_uring}};

json row_for(const undisturbed_stage& on, const other_work& what) {
  auto row = on.run.row(what.registrar, "4k", what.measure == during_uring ? on.run.real_bytes() : simulated_bytes(on));
  row["meanwhile"] = what.meanwhile;
  row["workers"] = on.workers;
  std::vector<latency> runs;
  for (unsigned i = 0; i < on.run.options.repeats; ++i) {
    const auto seen = what.measure(on);
    if (!seen) return add_failure(row, seen.error()), row;
    runs.push_back(*seen);
  }
  add_latency(row, median_by(std::move(runs), &latency::p99));
  row["errors"] = 0;
  return row;
}

void add_differences(json& rows) {
  const auto quiet = rows.at(0);
  for (auto& row : rows)
    if (row.contains("p99_ns") && quiet.contains("p99_ns"))
      row["p99_more_ns"] = rounded(row.at("p99_ns").get<double>() - quiet.at("p99_ns").get<double>());
}

json run_undisturbed(const startup_run& run) {
  progress_bar progress(bar_steps * subjects.size() * run.options.repeats);
  const undisturbed_stage on{run, std::ranges::max(run.options.workers), progress};
  auto rows = json::array();
  for (const auto& one : subjects) {
    rows.push_back(row_for(on, one));
    keep_rows(rows);
  }
  add_differences(rows);
  run.notes.emplace_back(
      "hits of a buffer of 1 MiB on one thread, of which every 16th is timed with two looks at the clock, while "
      "workers "
      "register other memory in the same cache");
  return rows;
}

std::vector<column> undisturbed_columns() {
  return with_errors({words("meanwhile", "meanwhile"), count("workers", "workers"), size("#bytes", "size"),
                      count("#hits", "iterations"), microseconds("p50[us]", "p50_ns", 3),
                      microseconds("p99[us]", "p99_ns", 3), microseconds("more[us]", "p99_more_ns", 3),
                      microseconds("p99.9[us]", "p999_ns", 3)});
}

}  // namespace

const perf_case<startup_run> undisturbed_case{"undisturbed", run_undisturbed, undisturbed_columns, ""};

}  // namespace tool
