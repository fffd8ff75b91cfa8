// SPDX-License-Identifier: BSD-3-Clause
// The hit-during-open case: the cost of hits on one entry while another thread slowly opens another entry, again and
// again.
#include "cli/failure.hpp"
#include "cli/progress.hpp"
#include "perf/import/import.hpp"
#include "perf/measure.hpp"
#include "perf/slow_importer.hpp"

#include <pinfold/import_cache.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stop_token>
#include <thread>
#include <utility>

namespace tool {
namespace {

using slow_cache = pinfold::import_cache<slow_importer>;

constexpr std::chrono::milliseconds default_delay{300};
constexpr std::uint64_t default_hits = 100'000;
constexpr std::uint64_t bursts = 100;  // spreads the hits in time, so that they meet several opens from begin to end
constexpr std::chrono::milliseconds pause{10};

struct hits {
  nanoseconds samples;
  std::uint64_t errors = 0;
};

void hit(slow_cache& cache, const message& hot, std::uint64_t number, hits& done) {
  const auto position = number * sizeof(std::uint64_t) % (hot.size / sizeof(std::uint64_t) * sizeof(std::uint64_t));
  std::uint64_t word = 0;
  bool acquired = false;
  const auto took = time_of([&] {
    const auto lease = cache.acquire(hot.peer, hot.handle, hot.handle.base, hot.size);
    acquired = lease.has_value();
    if (acquired) std::memcpy(&word, static_cast<const std::byte*>(lease->data()) + position, sizeof word);
  });
  done.samples.push_back(took);
  if (!acquired || word != word_at(hot.seed, position)) ++done.errors;
}

hits hit_in_bursts(slow_cache& cache, const message& hot, std::uint64_t count) {
  hits done;
  done.samples.reserve(count);
  for (std::uint64_t burst = 0; burst < bursts; ++burst) {
    for (auto i = count * burst / bursts; i < count * (burst + 1) / bursts; ++i) hit(cache, hot, i, done);
    std::this_thread::sleep_for(pause);
  }
  return done;
}

// Opens, releases and forgets one message until told to stop; returns true if all of that worked.
bool open_again_and_again(const std::stop_token& stop, slow_cache& cache, const message& cold) {
  while (!stop.stop_requested()) {
    const auto lease = cache.acquire(cold.peer, cold.handle, cold.handle.base, cold.size);
    if (!lease) return false;
    cache.invalidate(cold.peer, cold.handle.allocation());
  }
  return true;
}

std::pair<hits, unsigned> hit_during_opens(slow_cache& cache, const message& hot, const message& cold,
                                           std::uint64_t count, const std::atomic<unsigned>& begun) {
  std::atomic<bool> opener_worked{true};
  hits done;
  const auto before = begun.load(std::memory_order_seq_cst);
  {
    std::jthread opener([&](const std::stop_token& stop) {
      opener_worked.store(open_again_and_again(stop, cache, cold), std::memory_order_seq_cst);
    });
    while (begun.load(std::memory_order_seq_cst) == before && opener_worked.load(std::memory_order_seq_cst))
      std::this_thread::yield();
    done = hit_in_bursts(cache, hot, count);
  }
  if (!opener_worked.load(std::memory_order_seq_cst)) ++done.errors;
  return {std::move(done), begun.load(std::memory_order_seq_cst) - before};
}

json hits_row(const import_run& run, std::size_t size, std::chrono::milliseconds delay, unsigned opens, hits done) {
  auto row = run.row("pinfold", size, opens == 0 ? 1 : 2);
  row["meanwhile"] = opens == 0 ? "nothing" : "opens";
  row["opens"] = opens;
  row["open_ms"] = opens == 0 ? 0 : delay.count();
  add_latency(row, summarise(std::move(done.samples)));
  row["errors"] = done.errors;
  return row;
}

json run_hit_during_open(const import_run& run) {
  const auto delay = run.options.open_ms ? std::chrono::milliseconds(*run.options.open_ms) : default_delay;
  const auto count = run.options.iterations.value_or(default_hits);
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * 2);
  for (const auto size : run.options.sizes) {
    const auto messages = run.provide(2, size);
    std::atomic<unsigned> begun{0};
    slow_cache cache(slow_importer(run.importer(), delay, begun), run.options.cache);
    const auto& hot = messages[0];
    need(need(cache.acquire(hot.peer, hot.handle, hot.handle.base, hot.size), "cannot acquire a message").release(),
         "cannot release a message");
    static_cast<void>(hit_in_bursts(cache, messages[0], bursts));
    rows.push_back(hits_row(run, size, delay, 0, hit_in_bursts(cache, messages[0], count)));
    keep_rows(rows);
    progress.step();
    auto [done, opens] = hit_during_opens(cache, messages[0], messages[1], count, begun);
    rows.push_back(hits_row(run, size, delay, opens, std::move(done)));
    keep_rows(rows);
    progress.step();
    run.take_back(messages.size());
  }
  return rows;
}

std::vector<column> hit_during_open_columns() {
  return with_errors({size("#bytes", "size"), words("meanwhile", "meanwhile"), count("#opens", "opens"),
                      count("each[ms]", "open_ms"), count("#hits", "iterations"), microseconds("p50[us]", "p50_ns", 3),
                      microseconds("p99[us]", "p99_ns", 3), microseconds("p99.9[us]", "p999_ns", 3),
                      microseconds("average[us]", "ns_per_op", 3)});
}

}  // namespace

const perf_case<import_run> hit_during_open_case{"hit-during-open", run_hit_during_open, hit_during_open_columns,
                                                 "64K"};

}  // namespace tool
