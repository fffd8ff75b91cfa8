// SPDX-License-Identifier: BSD-3-Clause
#include "top/detail.hpp"

#include "cli/page_failure.hpp"
#include "cli/sizes.hpp"
#include "dump/listing.hpp"
#include "top/bars.hpp"
#include "top/figures.hpp"
#include "top/short_text.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/counters.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace tool::top {
namespace {

using pinfold::observation::histogram;
using lines = std::vector<std::string>;

constexpr std::size_t entries_of_each = 5;

void append(lines& to, lines more) { std::ranges::move(more, std::back_inserter(to)); }

// Breaks a text at blanks, and words that are longer than a line. All lines are indented.
lines filled(std::string_view text, std::size_t width) {
  lines made;
  while (!text.empty()) {
    auto end = std::min(text.size(), width - 2);
    if (end < text.size())
      if (const auto blank = text.rfind(' ', end); blank != std::string_view::npos && blank > 0) end = blank;
    made.push_back("  " + std::string(text.substr(0, end)));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return made;
}

std::string unlimited_or(std::string text) { return text == "-" ? "unlimited" : text; }

std::string percent(std::optional<double> share) { return share ? short_percent(share) + "%" : "-"; }

lines head(const process_sample& process, const cache_sample& cache, std::size_t width) {
  const auto& page = cache.page;
  lines made{cut(fmt::format("cache {} \"{}\", {}, of {} {} ({})", page.number, page.name, page.kind, process.page.pid,
                             process.page.command, name_of(process.page.state)),
                 width)};
  const auto count = page.max_count == UINT64_MAX ? "unlimited" : short_count(page.max_count);
  append(made, filled(fmt::format("{} of {}, {} of {} entries, {} leases; RLIMIT_MEMLOCK {}; {} shards; {} old{}",
                                  short_size(page.counters.bytes_now), unlimited_or(short_size(page.max_bytes)),
                                  short_count(page.counters.entries_now), count, short_count(page.counters.leases_now),
                                  unlimited_or(short_size(process.page.memlock_limit)), page.shards,
                                  short_time(static_cast<std::uint64_t>(page.age.count())),
                                  page.ended ? "; the cache ended" : ""),
                      width));
  append(made, filled(fmt::format("hits {} now, {} in all; {} requests/s, {} misses/s, {} evictions/s; counted {} ago",
                                  percent(hit_rate(cache.since)), percent(hit_rate(page.counters)),
                                  short_rate(per_second(cache.since.acquires, cache.seconds)),
                                  short_rate(per_second(cache.since.misses, cache.seconds)),
                                  short_rate(per_second(cache.since.evicted, cache.seconds)),
                                  short_time(static_cast<std::uint64_t>(process.page.since_published.count()))),
                      width));
  append(made, filled("monitors: " + page.monitors, width));
  return made;
}

std::string counter_cell(const pinfold::observation::counter_description& one, std::uint64_t value) {
  using enum pinfold::observation::counter_unit;
  auto text = fmt::format("{}", value);
  if (one.unit == nanoseconds) text = short_time(value);
  if (text.size() > 12) text = short_count(value);
  return fmt::format("  {:<24} {:>12}", one.name, text);
}

// In columns, down and then right, as many as fit.
lines counters_of(const cache_sample& cache, std::size_t width) {
  constexpr std::size_t cell = 39;
  const auto values = pinfold::observation::values_of(cache.page.counters);
  const auto& all = pinfold::observation::counters;
  const auto columns = std::clamp<std::size_t>(width / cell, 1, all.size());
  const auto height = (all.size() + columns - 1) / columns;
  lines made(height);
  for (std::size_t i = 0; i < all.size(); ++i) made[i % height] += counter_cell(all[i], values[i]);
  made.insert(made.begin(), "counters");
  return made;
}

std::string class_name(std::size_t which) {
  const auto largest = pinfold::observation::largest_of_class(which);
  return largest == 0 ? "larger" : "to " + short_size(largest);
}

std::string times_of(const histogram& one) {
  return fmt::format("{:>7} {:>6} {:>6}", short_count(count_of(one)), short_time(quantile(one, 0.5)),
                     short_time(quantile(one, 0.99)));
}

lines classes_of(const pinfold::observation::cache_snapshot& page) {
  lines made{"by size of registration",
             fmt::format("  {:<10}{:>21}   {:>21}   {:>21}", "", "requests that missed", "opens", "closes"),
             fmt::format("  {:<10}{:>21}   {:>21}   {:>21}", "bytes", "count    p50    p99", "count    p50    p99",
                         "count    p50    p99")};
  for (std::size_t i = 0; i < page.misses.size(); ++i) {
    if (count_of(page.misses[i]) + count_of(page.opens[i]) + count_of(page.closes[i]) == 0) continue;
    made.push_back(fmt::format("  {:<10}{:>21}   {:>21}   {:>21}", class_name(i), times_of(page.misses[i]),
                               times_of(page.opens[i]), times_of(page.closes[i])));
  }
  return made.size() > 3 ? made : lines{};
}

lines errors_of(const pinfold::observation::cache_snapshot& page, std::size_t width) {
  lines made{fmt::format("last errors of {}", page.errors_written)};
  for (auto one = page.errors.rbegin(); one != page.errors.rend(); ++one) {
    const auto range = range_text(one->begin, one->end);
    append(made, filled(fmt::format("{}{}{}: {}", name_of(static_cast<pinfold::observation::driver_call>(one->call)),
                                    range.empty() ? "" : " ", range, pinfold::describe(error_of(*one))),
                        width));
  }
  return page.errors.empty() ? lines{} : made;
}

lines slowest_of(const pinfold::observation::cache_snapshot& page) {
  lines made{"slowest driver calls"};
  for (const auto& [name, calls] :
       {std::pair("open", std::span(page.slowest_opens)), std::pair("close", std::span(page.slowest_closes))})
    for (const auto& one : calls)
      made.push_back(fmt::format("  {:<6} {:>6}  {}", name, short_time(one.duration), range_text(one.begin, one.end)));
  return made.size() > 1 ? made : lines{};
}

lines entries_by(const char* title, const char* order, std::vector<pinfold::dumped_entry> all) {
  if (all.empty()) return {};
  sort_entries(all, order);
  const auto without_end = [](std::string line) {
    line.pop_back();
    return line;
  };
  lines made{title, without_end(entry_titles())};
  for (std::size_t i = 0; i < std::min(entries_of_each, all.size()); ++i)
    made.push_back(without_end(entry_line(all[i])));
  return made;
}

lines entries_of(const cache_entries& entries, std::size_t width) {
  lines made;
  append(made, entries_by("largest entries", "bytes", entries.all));
  append(made, entries_by("oldest entries", "age", entries.all));
  append(made, entries_by("most reused entries", "hits", entries.all));
  if (entries.note.empty() && entries.all.empty()) return {"entries", "  none"};
  if (entries.note.empty()) return made;
  lines note{"entries"};
  append(note, filled(entries.note, width));
  append(note, std::move(made));
  return note;
}

lines titled_bars(std::string_view title, const histogram& of, value_of_bar kind, std::size_t width) {
  auto bars = bars_of(of, kind, width);
  if (bars.empty()) return bars;
  const bool times = kind == value_of_bar::nanoseconds;
  const auto scaled = [&](std::optional<std::uint64_t> value) {
    return times ? short_time(value) : short_count(value.value_or(0) / 128);
  };
  bars.insert(bars.begin(), fmt::format("{}: {}, median {}, p99 {}, highest {}", title, short_count(count_of(of)),
                                        scaled(quantile(of, 0.5)), scaled(quantile(of, 0.99)), scaled(of.largest)));
  return bars;
}

}  // namespace

lines detail_of(const process_sample& process, const cache_sample& cache, const cache_entries& entries,
                std::size_t width) {
  const auto& page = cache.page;
  auto made = head(process, cache, width);
  append(made, counters_of(cache, width));
  append(made, errors_of(page, width));
  append(made, slowest_of(page));
  append(made, entries_of(entries, width));
  append(made, classes_of(page));
  append(made, titled_bars("requests that missed", sum_of(page.misses), value_of_bar::nanoseconds, width));
  append(made, titled_bars("opens", sum_of(page.opens), value_of_bar::nanoseconds, width));
  append(made, titled_bars("closes", sum_of(page.closes), value_of_bar::nanoseconds, width));
  append(made, titled_bars("waits", page.waits, value_of_bar::nanoseconds, width));
  append(made, titled_bars("age at eviction", page.age_at_eviction, value_of_bar::nanoseconds, width));
  append(made, titled_bars("idle at eviction", page.idle_at_eviction, value_of_bar::nanoseconds, width));
  append(made, titled_bars("hits of evicted entries", page.hits_of_evicted, value_of_bar::hits, width));
  for (auto& line : made) line = cut(line, width);
  return made;
}

}  // namespace tool::top
