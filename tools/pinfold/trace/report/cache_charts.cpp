// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/cache_charts.hpp"

#include "trace/report/html.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

namespace tool {
namespace {

using html::count_text;
using html::time_text;

std::string span_text(const request_window& of) {
  return fmt::format("requests {} to {}", count_text(of.first + 1), count_text(of.first + of.requests));
}

std::uint64_t misses_in(const request_window& of) {
  std::uint64_t sum = 0;
  for (const auto one : of.misses) sum += one;
  return sum;
}

chart over_requests(const cache_analysis& of) {
  chart made;
  made.x = {"request", axis_unit::count, static_cast<double>(of.requests), true};
  return made;
}

axis_unit unit_of_room(bool in_entries) { return in_entries ? axis_unit::count : axis_unit::bytes; }

// Whole windows as a step line.
template <class Value>
chart_line line_over(const cache_analysis& of, std::string name, std::size_t style, Value value) {
  chart_line made{.name = std::move(name), .points = {}, .style = style, .steps = true, .marks = false};
  for (const auto& one : of.windows)
    made.points.emplace_back(static_cast<double>(one.first), static_cast<double>(value(one)));
  if (!made.points.empty()) made.points.emplace_back(static_cast<double>(of.requests), made.points.back().second);
  return made;
}

}  // namespace

const char* word_for(miss_kind kind) noexcept {
  switch (kind) {
    case miss_kind::cold: return "cold";
    case miss_kind::extent: return "extent";
    case miss_kind::again: return "again";
  }
  return "";
}

chart misses_chart(const cache_analysis& of, const std::string& id) {
  auto made = over_requests(of);
  made.id = id + "-misses";
  double most = 0;
  for (const auto& one : of.windows) {
    most = std::max({most, static_cast<double>(misses_in(one)), static_cast<double>(one.evictions)});
    made.tips.push_back(fmt::format("{}: {} misses, {} in the driver", span_text(one), count_text(misses_in(one)),
                                    time_text(one.opened_ns)));
  }
  for (std::size_t kind = 0; kind < miss_kinds; ++kind) {
    if (of.by_kind.at(kind).misses == 0) continue;
    chart_bars bars{.name = word_for(static_cast<miss_kind>(kind)), .values = {}, .style = kind};
    for (const auto& one : of.windows) bars.values.push_back(static_cast<double>(one.misses.at(kind)));
    made.bars.push_back(std::move(bars));
  }
  const auto each = of.windows.empty() ? 0 : of.windows.front().requests;
  made.title = fmt::format("Misses in each {} requests", count_text(std::max<std::size_t>(each, 1)));
  made.description = fmt::format("{} misses of {} requests; at most {} in one bar.", count_text(of.misses),
                                 count_text(of.requests), count_text(static_cast<std::uint64_t>(most)));
  made.y = {"misses", axis_unit::count, most};
  if (of.budget)
    made.lines.push_back(line_over(of, "evictions, replayed with the budget", 3,
                                   [](const request_window& one) { return one.evictions; }));
  return made;
}

chart driver_chart(const cache_analysis& of, const std::string& id) {
  auto made = over_requests(of);
  made.id = id + "-driver";
  chart_bars bars{.name = "time in the driver's opens", .values = {}, .style = 4};
  for (const auto& one : of.windows) {
    made.y.most = std::max(made.y.most, one.opened_ns);
    bars.values.push_back(one.opened_ns);
    made.tips.push_back(fmt::format("{}: {}", span_text(one), time_text(one.opened_ns)));
  }
  made.bars.push_back(std::move(bars));
  made.title = "Time in the driver";
  made.description = fmt::format("{} in all; at most {} in one bar.", time_text(of.opened_ns), time_text(made.y.most));
  made.y = {"time", axis_unit::nanoseconds, made.y.most};
  made.height = 200;
  return made;
}

chart working_set_chart(const cache_analysis& of, const std::string& id, bool in_entries) {
  auto made = over_requests(of);
  made.id = id + "-set";
  made.lines.push_back(line_over(of, "used in the window", 0, [](const request_window& one) { return one.used; }));
  made.lines.push_back(line_over(of, "used so far", 1, [](const request_window& one) { return one.seen; }));
  double most = static_cast<double>(of.room);
  if (of.budget) {
    const auto budget = static_cast<double>(*of.budget);
    made.lines.push_back({.name = "budget",
                          .points = {{0, budget}, {static_cast<double>(of.requests), budget}},
                          .style = 3,
                          .steps = false,
                          .marks = false});
    most = std::max(most, std::min(budget, 3 * most));
    if (budget > most) made.lines.pop_back();
  }
  made.title = "Working set: the registrations that requests use";
  made.description = fmt::format("In each window of requests, and from the first request on; {} in all.",
                                 in_entries ? count_text(of.room) + " registrations" : count_text(of.room) + " bytes");
  made.y = {in_entries ? "registrations" : "bytes", unit_of_room(in_entries), most};
  return made;
}

chart budgets_chart(const cache_analysis& of, const std::string& id, bool in_entries) {
  constexpr std::size_t points = 240;
  chart made;
  made.id = id + "-budgets";
  made.x = {"budget", unit_of_room(in_entries), static_cast<double>(of.room)};
  chart_line lru{.name = "lru, every budget", .points = {}, .style = 0, .steps = true, .marks = false};
  for (std::size_t i = 0; i <= points; ++i) {
    const auto budget = of.largest + (of.room - of.largest) * i / points;
    lru.points.emplace_back(static_cast<double>(budget), static_cast<double>(of.curve.misses(budget)));
  }
  double most = lru.points.front().second;
  made.lines.push_back(std::move(lru));
  std::size_t style = 1;
  for (const std::string_view policy : {"second-chance", "classes-2", "offline"}) {
    chart_line line{.name = std::string(policy), .points = {}, .style = style++, .steps = false, .marks = true};
    for (const auto& one : of.what_ifs) {
      if (policy != one.policy || one.budget > of.room) continue;
      line.points.emplace_back(static_cast<double>(one.budget), static_cast<double>(one.result.misses));
      most = std::max(most, line.points.back().second);
    }
    if (!line.points.empty()) made.lines.push_back(std::move(line));
  }
  made.title = "Misses by budget, if the requests are replayed";
  made.description =
      fmt::format("With room for everything {} misses remain, one for each registration; the trace has {}.",
                  count_text(of.registrations), count_text(of.misses));
  made.y = {"misses", axis_unit::count, most};
  made.height = 300;
  return made;
}

}  // namespace tool
