// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/advice.hpp"

#include "cli/sizes.hpp"
#include "trace/replay/second_chance.hpp"
#include "trace/report/html.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace tool {
namespace {

using html::count_text;
using html::percent_text;
using html::room_text;
using html::time_text;

constexpr double least_share = 0.1;
constexpr std::uint64_t least_number = 20;

bool matters(std::uint64_t part, std::uint64_t whole) noexcept {
  return part >= least_number && static_cast<double>(part) >= least_share * static_cast<double>(whole);
}

double share(std::uint64_t part, std::uint64_t whole) noexcept {
  return static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(whole, 1));
}

/// The advice on one cache.
class adviser {
 public:
  adviser(const recorded_cache& of, const cache_analysis& figures, bool in_entries)
      : of_(of), figures_(figures), in_entries_(in_entries) {}

  std::vector<std::string> all() {
    advise_room();
    advise_merging();
    advise_bypass();
    advise_unused_budget();
    return std::move(said_);
  }

 private:
  [[nodiscard]] const miss_total& total(miss_kind kind) const {
    return figures_.by_kind.at(static_cast<std::size_t>(kind));
  }

  // The room with which nine tenths of the repeated opens are saved, if that is clearly more than the present budget.
  void advise_room() {
    const auto repeated = total(miss_kind::again).misses;
    if (!matters(repeated, figures_.misses)) return;
    const auto kept = figures_.misses - repeated;
    const auto room = std::max(figures_.curve.budget_for(kept + repeated / 10), figures_.largest);
    if (figures_.budget && room <= *figures_.budget) return advise_invalidations(*figures_.budget);
    second_chance chooser(of_.work);
    const auto then = simulate(of_.work, chooser, room);
    if (then.misses >= figures_.misses) return;
    said_.push_back(fmt::format(
        "{} of the misses open memory again that had been registered before. A budget of {} would have saved {} of the "
        "misses: {} instead of {}, {} in the driver instead of {}. This holds if evictions closed those registrations; "
        "after an invalidation, or if the request needs more access than the registration has, a larger budget saves "
        "nothing.",
        percent_text(static_cast<double>(repeated), static_cast<double>(figures_.misses)), room_text(room, in_entries_),
        percent_text(static_cast<double>(figures_.misses - then.misses), static_cast<double>(figures_.misses)),
        count_text(then.misses), count_text(figures_.misses), time_text(then.cost_ns), time_text(figures_.opened_ns)));
  }

  void advise_invalidations(std::uint64_t budget) {
    const auto& replayed = figures_.replayed(budget, "second-chance");
    if (!matters(figures_.misses - std::min(figures_.misses, replayed.misses), figures_.misses)) return;
    said_.push_back(fmt::format(
        "With a budget of {}, evictions explain {} misses, but the trace has {}: the others follow invalidations, or "
        "ask "
        "for more access than the registration had. Keep buffers allocated between uses, and ask for all the access "
        "that a "
        "buffer will need at its first request (or set `PINFOLD_MERGE=rights`).",
        room_text(budget, in_entries_), count_text(replayed.misses), count_text(figures_.misses)));
  }

  void advise_merging() {
    const auto& overlapping = total(miss_kind::extent);
    if (!matters(overlapping.misses, figures_.misses)) return;
    said_.push_back(fmt::format(
        "{} of the misses overlap memory that was registered before and reach beyond it ({} in the driver). With "
        "`PINFOLD_MERGE=overlaps` (`merge_policy::overlaps`) the cache registers the union once. Better still, "
        "register the "
        "whole buffer with the first request.",
        percent_text(static_cast<double>(overlapping.misses), static_cast<double>(figures_.misses)),
        time_text(overlapping.opened_ns)));
  }

  void advise_bypass() {
    const auto& once = figures_.once;
    if (!matters(once.registrations, figures_.registrations) || share(once.registrations, figures_.registrations) < 0.5)
      return;
    said_.push_back(fmt::format(
        "{} of the registrations ({}) serve a single request, and took {} in the driver. Reuse fewer, longer-lived "
        "buffers; where that is not possible, request them with `acquire_options::bypass`, so that they take no room "
        "from "
        "registrations that are used again.",
        percent_text(static_cast<double>(once.registrations), static_cast<double>(figures_.registrations)),
        size_text(once.bytes), time_text(once.opened_ns)));
  }

  void advise_unused_budget() {
    if (!figures_.budget || figures_.room > *figures_.budget / 2) return;
    said_.push_back(fmt::format("The budget of {} is never used: all registrations together take {}.",
                                room_text(*figures_.budget, in_entries_), room_text(figures_.room, in_entries_)));
  }

  const recorded_cache& of_;
  const cache_analysis& figures_;
  bool in_entries_;
  std::vector<std::string> said_;
};

}  // namespace

std::vector<std::string> advice_for(const recorded_cache& of, const cache_analysis& figures, bool in_entries) {
  return adviser(of, figures, in_entries).all();
}

}  // namespace tool
