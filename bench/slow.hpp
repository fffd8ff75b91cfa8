// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Slow drivers: whether registrations run in parallel, and whether hits wait for them.
#pragma once

#include "rows.hpp"
#include "subject.hpp"
#include "worker_group.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <vector>

namespace bench {

/// Measures disjoint regions that are slow to register.
template <subject Subject>
json measure_parallel_misses(const parameters& how) {
  constexpr std::size_t count = 24;
  constexpr unsigned threads = 4;
  constexpr unsigned most_repeats = 3;  // the calls sleep, so noise is comparatively small
  const region_set regions(count);
  const auto all = each_once(regions, false);
  std::atomic<std::uint64_t> errors{0};
  std::vector<double> seconds;
  for (unsigned repeat = 0; repeat < std::min(how.repeats, most_repeats); ++repeat) {
    Subject cache(regions, setup{.register_delay = std::chrono::milliseconds(how.delay_ms)});
    std::atomic<std::size_t> next{0};
    const auto begin = now_ns();
    run_crew(threads, [&](unsigned, starting_line&) {
      auto user = cache.user();
      tally seen;
      for (auto at = next.fetch_add(1); at < count; at = next.fetch_add(1))
        use_each(user, all.data() + at, all.data() + at + 1, seen);
      errors += seen.errors;
    });
    seconds.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
  }
  auto row = row_of(Subject::name, count, threads, "sequential");
  row["case"] = "parallel-misses";
  row["delay_ms"] = how.delay_ms;
  row["seconds"] = rounded(median(std::move(seconds)));
  row["errors"] = errors.load();
  return row;
}

/// The times of single operations.
using samples = std::vector<double>;

/// Returns the smallest sample that at least this share of them does not exceed; 0 when there are none.
[[nodiscard]] inline double share_of(samples& all, double share) {
  if (all.empty()) return 0;
  const auto rank = std::min(all.size() - 1, static_cast<std::size_t>(share * static_cast<double>(all.size())));
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(rank);
  std::ranges::nth_element(all, at);
  return *at;
}

/// Times hits in bursts, so that they meet several slow calls from begin to end. Ends after 5 seconds where hits do
/// wait.
template <class User>
samples time_hits(User& user, const request& hot, std::size_t count, tally& seen) {
  constexpr std::size_t bursts = 100;
  constexpr std::chrono::milliseconds rest{10};
  constexpr std::chrono::seconds longest{5};
  samples taken;
  taken.reserve(count);
  const auto end = std::chrono::steady_clock::now() + longest;
  for (std::size_t burst = 0; burst < bursts && std::chrono::steady_clock::now() < end; ++burst) {
    for (auto i = count * burst / bursts; i < count * (burst + 1) / bursts; ++i) {
      const auto begin = now_ns();
      use_each(user, &hot, &hot + 1, seen);
      taken.push_back(static_cast<double>(now_ns() - begin));
    }
    std::this_thread::sleep_for(rest);
  }
  return taken;
}

/// Registers and deregisters one region until told to stop.
template <class User>
void come_and_go(const std::stop_token& stop, User user, const request& cold, std::atomic<unsigned>& rounds) {
  while (!stop.stop_requested()) {
    auto held = user.get(cold);
    rounds.fetch_add(1);
    user.forget(held);
    user.put(held);
  }
}

/// Measures hits while another thread is in the driver. `meanwhile`: nothing, registrations, deregistrations.
template <subject Subject>
  requires forgetting_user<decltype(std::declval<Subject&>().user())>
json measure_hits_meanwhile(const parameters& how, const char* meanwhile, const setup& slow) {
  const region_set regions(2);
  Subject cache(regions, slow);
  auto user = cache.user();
  tally seen;
  const auto hot = regions[0];
  const auto cold = regions[1];
  use_each(user, &hot, &hot + 1, seen);
  std::atomic<unsigned> rounds{0};
  samples taken;
  {
    std::jthread other;
    if (slow.register_delay.count() + slow.deregister_delay.count() > 0) {
      other = std::jthread([&](const std::stop_token& stop) { come_and_go(stop, cache.user(), cold, rounds); });
      while (rounds.load() == 0) std::this_thread::yield();  // a busy machine may take long to start the thread
    }
    taken = time_hits(user, hot, how.hits, seen);
  }
  auto row = row_of(Subject::name, 2, rounds == 0 ? 1 : 2, "same");
  row["case"] = "hit-meanwhile";
  row["meanwhile"] = meanwhile;
  row["rounds"] = rounds.load();
  row["hits"] = taken.size();
  row["p50_ns"] = share_of(taken, 0.5);
  row["p99_ns"] = share_of(taken, 0.99);
  row["longest_ns"] = share_of(taken, 1);
  row["errors"] = seen.errors;
  return row;
}

template <subject Subject>
json measure_slow(const parameters& how) {
  const std::chrono::milliseconds pause(how.pause_ms);
  auto rows = json::array();
  add_row(how, rows, measure_parallel_misses<Subject>(how));
  add_row(how, rows, measure_hits_meanwhile<Subject>(how, "nothing", setup{}));
  add_row(how, rows, measure_hits_meanwhile<Subject>(how, "registrations", setup{.register_delay = pause}));
  add_row(how, rows, measure_hits_meanwhile<Subject>(how, "deregistrations", setup{.deregister_delay = pause}));
  return rows;
}

}  // namespace bench
