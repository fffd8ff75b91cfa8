// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cost of hits: with each of the monitors, and while another thread unmaps memory.
#pragma once

#include "monitor_unmap.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

/// A subject whose hits are measured in turn with others in this process.
struct lane {
  std::string name;
  std::string skipped;  ///< why not
  std::function<window(std::uint64_t operations)> hits;
  std::shared_ptr<tally> seen = std::make_shared<tally>();
};

/// Makes a lane with its own thousand regions.
using lane_maker = std::function<lane(const parameters&)>;
inline constexpr std::size_t lane_regions = 1000;

template <unmapping_subject Subject>
lane make_lane(const parameters& how) try {
  struct state {
    explicit state() : area(lane_regions), cache(area.regions(), setup{}), user(cache.user()) {}
    mapped_area area;
    Subject cache;
    decltype(std::declval<Subject&>().user()) user;
    requests wanted = requests_for(area.regions(), pattern::random, 0, 1);
    request_ring ring{wanted};
  };
  const auto own = std::make_shared<state>();
  lane made{Subject::name, {}, {}};
  fill(own->cache, own->area.regions(), how.time_limit, *made.seen, false);
  made.hits = [own, seen = made.seen](std::uint64_t operations) {
    use(own->user, own->ring, lane_regions, *seen);  // brings back into the CPU's caches what the other lanes displaced
    return watch(operations, [&] { use(own->user, own->ring, operations, *seen); });
  };
  return made;
} catch (const std::runtime_error& why) {
  return {Subject::name, why.what(), {}};
}

template <unmapping_subject... Subjects>
std::vector<lane_maker> lanes_of() {
  return {lane_maker(make_lane<Subjects>)...};
}

/// Returns a row for each lane, with its time above that of the first.
inline json compare_hits(const parameters& how, const std::vector<lane_maker>& makers) {
  constexpr std::uint64_t operations = 100'000;
  std::vector<lane> lanes;
  for (const auto& make : makers) lanes.push_back(make(how));
  std::vector<windows> seen(lanes.size());
  {
    const pinned_here stay(0);
    const auto length = how.seconds * how.repeats * static_cast<double>(lanes.size());
    const auto end = now_ns() + static_cast<std::uint64_t>(1e9 * length);
    do {
      for (std::size_t i = 0; i < lanes.size(); ++i)
        if (lanes[i].hits) seen[i].push_back(lanes[i].hits(operations));
    } while (now_ns() < end);
  }
  auto rows = json::array();
  const auto first = typical(seen.front());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    json row{{"case", "hits"}, {"subject", lanes[i].name}, {"regions", lane_regions}, {"threads", 1}};
    if (!lanes[i].hits) {
      rows.push_back(skipped_row(row, std::runtime_error(lanes[i].skipped)));
      continue;
    }
    row["ns_per_op"] = rounded(typical(seen[i]));
    if (first > 0) row["ns_extra"] = rounded(typical(seen[i]) - first);
    row["windows"] = seen[i].size();
    row["errors"] = lanes[i].seen->errors;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// What another thread does while hits are measured.
enum class meanwhile : std::uint8_t { nothing, unrelated, registered };

[[nodiscard]] constexpr const char* name_of(meanwhile of) noexcept {
  switch (of) {
    case meanwhile::nothing: return "nothing";
    case meanwhile::unrelated: return "unrelated";
    case meanwhile::registered: return "registered";
  }
  return "unknown";
}

/// Maps and unmaps until told to stop. Counts its munmaps in `done`.
template <class Subject>
void unmap_until(const std::stop_token& stop, Subject& cache, meanwhile what, std::atomic<std::uint64_t>& done) {
  const pinned_here stay(1);
  mapped_area area(1);
  auto user = cache.user();
  const auto all = area.regions()[0];
  tally seen;
  for (; !stop.stop_requested(); done.fetch_add(1, std::memory_order_relaxed)) {
    if (what == meanwhile::unrelated) {
      map_and_unmap(1);
      continue;
    }
    use_each(user, &all, &all + 1, seen);
    announce(cache, area);
    area.unmap();
    area.map_again();
  }
}

/// Times hits a few at a time: reading the clock takes longer than a hit.
template <class User>
samples time_hits_for(double seconds, User& user, const requests& wanted, tally& seen) {
  constexpr std::size_t at_a_time = 32;
  samples taken;
  taken.reserve(std::size_t{1} << 20);
  const auto end = now_ns() + static_cast<std::uint64_t>(1e9 * seconds);
  auto now = now_ns();
  for (std::size_t at = 0; now < end; at = (at + at_a_time) % wanted.size()) {
    use_each(user, wanted.data() + at, wanted.data() + at + at_a_time, seen);
    const auto then = std::exchange(now, now_ns());
    taken.push_back(static_cast<double>(now - then) / at_a_time);
  }
  return taken;
}

struct beside_result {
  std::vector<double> p50, p99, p999, longest, unmaps;
};

template <unmapping_subject Subject>
json hits_beside(const parameters& how, const json& begun) {
  if (cpus_at_start().size() < 2) throw cannot_be_measured("the measurement needs more than one CPU");
  constexpr std::size_t count = 100;
  constexpr std::array all{meanwhile::nothing, meanwhile::unrelated, meanwhile::registered};
  const mapped_area area(count);
  Subject cache(area.regions(), setup{.threads = 2});
  tally seen;
  fill(cache, area.regions(), how.time_limit, seen, false);
  const pinned_here stay(0);
  const auto wanted = requests_for(area.regions(), pattern::random, 0, 1);
  auto user = cache.user();
  std::array<beside_result, all.size()> results;
  for (unsigned repeat = 0; repeat < how.repeats; ++repeat) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::atomic<std::uint64_t> unmaps{0};
      std::jthread other;
      if (all[i] != meanwhile::nothing) {
        other = std::jthread([&](const std::stop_token& stop) { unmap_until(stop, cache, all[i], unmaps); });
        while (unmaps.load() == 0) std::this_thread::yield();  // a busy machine may take long to start the thread
      }
      auto taken = time_hits_for(how.seconds, user, wanted, seen);
      other = {};
      results[i].p50.push_back(share_of(taken, 0.5));
      results[i].p99.push_back(share_of(taken, 0.99));
      results[i].p999.push_back(share_of(taken, 0.999));
      results[i].longest.push_back(share_of(taken, 1));
      results[i].unmaps.push_back(static_cast<double>(unmaps.load()) / how.seconds);
    }
  }
  auto rows = json::array();
  const auto quiet = median(results[0].p50);
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto row = begun;
    row["threads"] = 2;
    row["meanwhile"] = name_of(all[i]);
    row["p50_ns"] = rounded(median(results[i].p50));
    row["p99_ns"] = rounded(median(results[i].p99));
    row["p999_ns"] = rounded(median(results[i].p999));
    row["longest_ns"] = rounded(median(results[i].longest));
    row["x_quiet"] = quiet == 0 ? 0 : rounded(median(results[i].p50) / quiet);
    row["unmaps_per_s"] = rounded(median(results[i].unmaps));
    row["errors"] = i == 0 ? seen.errors : 0;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace bench
