// SPDX-License-Identifier: BSD-3-Clause
#include "top/table.hpp"

#include "top/figures.hpp"
#include "top/short_text.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>

namespace tool::top {
namespace {

constexpr std::string_view indent = "   ";
constexpr std::size_t name_width = 16;
constexpr std::size_t kind_width = 11;

struct number_column {
  std::string_view title;
  std::size_t width;  // with a blank
  std::string (*cell)(const cache_sample& one);
};

std::string rate_of(const cache_sample& one, std::uint64_t growth) {
  return short_rate(per_second(growth, one.seconds));
}

std::string open_time(const cache_sample& one, double share) {
  return short_time(quantile(sum_of(one.page.opens), share));
}

// Behind the name and the registrar.
constexpr std::array first_columns{
    number_column{"HIT%", 6, [](const cache_sample& one) { return short_percent(hit_rate(one.since)); }},
    number_column{"ALL%", 6, [](const cache_sample& one) { return short_percent(hit_rate(one.page.counters)); }},
    number_column{"REQ/S", 7, [](const cache_sample& one) { return rate_of(one, one.since.acquires); }},
    number_column{"BYTES", 7, [](const cache_sample& one) { return short_size(one.page.counters.bytes_now); }},
    number_column{"MAX", 6, [](const cache_sample& one) { return short_size(one.page.max_bytes); }},
    number_column{"ENTRIES", 8, [](const cache_sample& one) { return short_count(one.page.counters.entries_now); }},
    number_column{"MAX", 6,
                  [](const cache_sample& one) {
                    return one.page.max_count == UINT64_MAX ? "-" : short_count(one.page.max_count);
                  }},
};

constexpr std::array second_columns{
    number_column{"COLD", 6, [](const cache_sample& one) { return short_count(one.page.counters.misses_cold); }},
    number_column{"INVAL", 6,
                  [](const cache_sample& one) { return short_count(one.page.counters.misses_invalidated); }},
    number_column{"ACCESS", 7, [](const cache_sample& one) { return short_count(one.page.counters.misses_access); }},
    number_column{"EXTENT", 7, [](const cache_sample& one) { return short_count(one.page.counters.misses_extent); }},
    number_column{"EVICT", 6, [](const cache_sample& one) { return short_count(one.page.counters.misses_evicted); }},
    number_column{"OPEN50", 7, [](const cache_sample& one) { return open_time(one, 0.5); }},
    number_column{"OPEN99", 7, [](const cache_sample& one) { return open_time(one, 0.99); }},
    number_column{"EV/S", 6, [](const cache_sample& one) { return rate_of(one, one.since.evicted); }},
    number_column{"STALE", 6, [](const cache_sample& one) { return short_count(stale_prevented(one.page.counters)); }},
    number_column{"WAITS", 6, [](const cache_sample& one) { return short_count(count_of(one.page.waits)); }},
    number_column{"FAILED", 7, [](const cache_sample& one) { return short_count(failures(one.page.counters)); }},
};

template <class Columns>
constexpr std::size_t width_of(const Columns& columns) {
  std::size_t all = 0;
  for (const auto& one : columns) all += one.width;
  return all;
}

constexpr std::size_t first_width = indent.size() + name_width + 1 + kind_width + width_of(first_columns);
constexpr std::size_t second_width = width_of(second_columns);
static_assert(first_width <= least_width && 6 + second_width <= least_width);

template <class Columns>
std::string titles_of(const Columns& columns) {
  std::string text;
  for (const auto& one : columns) text += right(one.title, one.width);
  return text;
}

template <class Columns>
std::string cells_of(const Columns& columns, const cache_sample& of) {
  std::string text;
  for (const auto& one : columns) text += right(one.cell(of), one.width);
  return text;
}

struct layout {
  std::size_t width;
  bool one_line;
  std::size_t more;  // room for longer names

  explicit layout(std::size_t columns)
      : width(std::max(columns, least_width)), one_line(width >= first_width + second_width) {
    more = width - first_width - (one_line ? second_width : 0);
  }
  [[nodiscard]] std::vector<std::string> lines(std::string first, const std::string& second) const {
    if (one_line) return {std::move(first) + second};
    return {std::move(first), std::string(width - second_width, ' ') + second};
  }
};

std::string name_of_cache(const cache_sample& one, std::size_t width) {
  const std::string_view name = one.page.name.empty() ? "(no name)" : std::string_view(one.page.name);
  constexpr std::string_view mark = " (ended)";
  if (!one.page.ended) return left(name, width);
  return left(cut(name, width - mark.size()) + std::string(mark), width);
}

std::string process_title(const layout& in) {
  return fmt::format(" {:>7} {} {:<8} {:>6} {:>6} {:>7}  {}", "PID", left("COMMAND", 16 + in.more), "STATE", "BYTES",
                     "BUDGET", "MEMLOCK", "CACHES");
}

std::string process_line(const process_sample& one, const layout& in) {
  auto caches = fmt::format("{}", one.held.running);
  if (one.held.ended > 0) caches += fmt::format(" +{} ended", one.held.ended);
  if (one.page.caches_unlisted > 0) caches += fmt::format(" +{} unlisted", short_count(one.page.caches_unlisted));
  return cut(fmt::format(" {:>7} {} {:<8} {:>6} {:>6} {:>7}  {}", one.page.pid, left(one.page.command, 16 + in.more),
                         name_of(one.page.state), short_size(one.held.bytes), short_size(one.held.budget),
                         short_size(one.page.memlock_limit), caches),
             in.width);
}

}  // namespace

table_text table_of(const sample& taken, std::size_t width) {
  const layout in(width);
  table_text made;
  made.lines_of_cache = in.one_line ? 1 : 2;
  made.titles = in.lines(std::string(indent) + left("CACHE", name_width + in.more) + " " +
                             left("REGISTRAR", kind_width) + titles_of(first_columns),
                         titles_of(second_columns));
  made.titles.insert(made.titles.begin(), process_title(in));
  for (const auto& process : taken.processes) {
    made.lines.push_back(process_line(process, in));
    for (const auto& one : process.caches) {
      made.caches.push_back({{process.page.path, one.page.number}, made.lines.size()});
      auto first = std::string(indent) + name_of_cache(one, name_width + in.more) + " " +
                   left(one.page.kind, kind_width) + cells_of(first_columns, one);
      for (auto& line : in.lines(std::move(first), cells_of(second_columns, one)))
        made.lines.push_back(std::move(line));
    }
  }
  return made;
}

}  // namespace tool::top
