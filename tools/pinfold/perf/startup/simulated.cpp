// SPDX-License-Identifier: BSD-3-Clause
// The simulated case: hundreds of gigabytes over a driver simulated at measured costs, which a program registers by
// one call after the other, or in the background.
#include "cli/progress.hpp"
#include "cli/sizes.hpp"
#include "perf/startup/mapped_range.hpp"
#include "perf/startup/register_all.hpp"
#include "perf/startup/simulated_driver.hpp"
#include "perf/startup/startup.hpp"

#include <pinfold/cache.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace tool {
namespace {

// What registering costs with one kind of pages, as measured with network cards and GPUs.
struct page_cost {
  const char* pages;
  double ns_per_byte;
};

constexpr double gib = 1024.0 * 1024 * 1024;
constexpr std::array costs{page_cost{"4k", 0.1},             // 10 GB/s
                           page_cost{"huge", 0.7e6 / gib}};  // 0.7 ms a GiB

struct stage {
  const startup_run& run;
  const mapped_range& memory;
  simulated_costs costs;
  progress_bar& progress;

  [[nodiscard]] std::size_t size() const noexcept { return memory.where().size(); }
};

// Returns the seconds that all rows with these pages take, not scaled.
double seconds_of(const startup_options& options, std::size_t size, const simulated_costs& of) {
  double runs = 2;  // the one thread, of both drivers
  for (const auto workers : options.workers) runs += 1 + 1.0 / workers;
  return runs * options.repeats * of.seconds(size);
}

double scale_for(const startup_options& options, std::size_t size, const simulated_costs& of) {
  const auto share = options.time_limit / static_cast<double>(costs.size());
  return std::max(1.0, std::ceil(seconds_of(options, size, of) / share));
}

// As programs do today: one thread, and calls as large as the driver allows.
pinfold::result<timeline> call_by_call(const stage& on) {
  simulated_registrar registrar(on.costs);
  timeline seen;
  const stopwatch since;
  for (auto left = on.memory.where(); !left.empty();) {
    const pinfold::range mine{left.begin, left.begin + std::min(left.size(), on.costs.max_bytes)};
    auto made = registrar.open(mine, pinfold::local_access);
    if (!made) return tl::unexpected(made.error());
    left.begin = mine.end;
    if (seen.first == 0) seen.first = since.seconds();
    if (seen.half == 0 && left.size() <= on.size() / 2) seen.half = since.seconds();
  }
  seen.total = since.seconds();
  seen.longest = registrar.longest();
  on.progress.step(bar_steps);
  return seen;
}

// No thread touches the memory or unmaps it, so no monitor is needed.
pinfold::result<timeline> in_background(const stage& on, unsigned workers) {
  pinfold::cache cache{simulated_registrar(on.costs), {.monitor = pinfold::monitor_choice::manual}};
  return register_all(cache, on.memory.where(), {.piece_bytes = on.run.options.piece, .workers = workers}, on.progress);
}

json row_of(const stage& on, const page_cost& cost, const char* method, unsigned workers) {
  auto row = on.run.row("simulated", cost.pages, on.size());
  row["driver"] = on.costs.serialises ? "serialises" : "parallel";
  row["method"] = method;
  row["workers"] = workers;
  row["time_scale"] = on.costs.scale;
  return row;
}

template <class Measure>
json measured(const stage& on, json row, Measure&& once) {
  std::vector<timeline> runs;
  for (unsigned i = 0; i < on.run.options.repeats; ++i) {
    const auto seen = once();
    if (!seen) {
      row["error"] = pinfold::describe(seen.error());
      row["errors"] = 1;
      return row;
    }
    runs.push_back(*seen);
  }
  add_timeline(row, median_of(std::move(runs)), on.costs.scale);
  return row;
}

void add_rows(json& rows, const stage& on, const page_cost& cost) {
  rows.push_back(measured(on, row_of(on, cost, "one thread", 1), [&] { return call_by_call(on); }));
  keep_rows(rows);
  for (const auto workers : on.run.options.workers) {
    rows.push_back(measured(on, row_of(on, cost, "background", workers), [&] { return in_background(on, workers); }));
    keep_rows(rows);
  }
}

void note_scale(const startup_run& run, const page_cost& cost, double scale) {
  if (scale == 1) return;
  run.notes.push_back(
      fmt::format("{} pages: the simulated calls slept for 1/{:.0f} of their time, and all times are "
                  "multiplied by {:.0f}; --time-limit changes that",
                  cost.pages, scale, scale));
}

json run_simulated(const startup_run& run) {
  const auto& options = run.options;
  const auto memory = mapped_range::reserve(options.bytes.value_or(std::size_t{500} << 30U));
  progress_bar progress(bar_steps * costs.size() * 2 * (1 + options.workers.size()) * options.repeats);
  auto rows = json::array();
  for (const auto& cost : costs) {
    simulated_costs takes{.ns_per_byte = cost.ns_per_byte, .max_bytes = options.limit};
    takes.scale = scale_for(options, memory.where().size(), takes);
    for (const bool serialises : {true, false}) {
      takes.serialises = serialises;
      add_rows(rows, {run, memory, takes, progress}, cost);
    }
    note_scale(run, cost, takes.scale);
  }
  run.notes.emplace_back(
      "the driver is simulated at measured costs: 10 GB/s with 4 KiB pages, 0.7 ms a GiB with huge "
      "pages; the memory is a reserved range of addresses, which no thread touches");
  add_startup_gains(rows);
  return rows;
}

std::vector<column> simulated_columns() {
  std::vector<column> all{words("driver", "driver"), words("pages", "pages"), words("method", "method"),
                          count("workers", "workers")};
  for (auto& one : timeline_columns()) all.push_back(std::move(one));
  return with_errors(std::move(all));
}

}  // namespace

const perf_case<startup_run> simulated_case{"simulated", run_simulated, simulated_columns, "500G"};

}  // namespace tool
