// SPDX-License-Identifier: BSD-3-Clause
#include "settings/settings_table.hpp"

#include <pinfold/node_budget.hpp>
#include <pinfold/settings.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace pinfold::detail {
namespace {

using std::chrono::milliseconds;

// Deadlines are added to the clock's now, which must not overflow.
constexpr std::chrono::hours longest_timeout{365 * 24};

constexpr std::array<std::pair<std::string_view, bool>, 6> switch_words{
    {{"on", true}, {"off", false}, {"true", true}, {"false", false}, {"1", true}, {"0", false}}};
constexpr std::array<std::pair<std::string_view, when_full>, 3> full_words{
    {{"fail", when_full::fail}, {"wait", when_full::wait}, {"bypass", when_full::bypass}}};
constexpr std::array<std::pair<std::string_view, close_policy>, 2> close_words{
    {{"immediate", close_policy::immediate}, {"deferred", close_policy::deferred}}};
constexpr std::array<std::pair<std::string_view, merge_policy>, 3> merge_words{
    {{"none", merge_policy::none}, {"rights", merge_policy::rights}, {"overlaps", merge_policy::overlaps}}};
constexpr std::string_view no_budget_word = "none";
constexpr std::string_view automatic_word = "automatic";
constexpr std::array<std::pair<std::string_view, monitor_choice>, 5> monitor_words{
    {{"manual", monitor_choice::manual},
     {"hooks", monitor_choice::hooks},
     {"userfaultfd", monitor_choice::userfaultfd},
     {"bpf", monitor_choice::bpf},
     {"none", monitor_choice::none}}};

template <class T, std::size_t N>
bool read_word(const std::array<std::pair<std::string_view, T>, N>& words, std::string_view text, T& into) noexcept {
  for (const auto& [word, value] : words) {
    if (word != text) continue;
    into = value;
    return true;
  }
  return false;
}

template <class T, std::size_t N>
std::string word_for(const std::array<std::pair<std::string_view, T>, N>& words, T value) {
  for (const auto& [word, meaning] : words) {
    if (meaning == value) return std::string(word);
  }
  return std::string(words.front().first);
}

result<void> read(std::string_view text, bool& into) noexcept {
  if (read_word(switch_words, text, into)) return {};
  return fail(errc::invalid_argument, "expected on or off");
}

result<void> read(std::string_view text, when_full& into) noexcept {
  if (read_word(full_words, text, into)) return {};
  return fail(errc::invalid_argument, "expected fail, wait or bypass");
}

result<void> read(std::string_view text, close_policy& into) noexcept {
  if (read_word(close_words, text, into)) return {};
  return fail(errc::invalid_argument, "expected immediate or deferred");
}

result<void> read(std::string_view text, merge_policy& into) noexcept {
  if (read_word(merge_words, text, into)) return {};
  return fail(errc::invalid_argument, "expected none, rights or overlaps");
}

result<void> read(std::string_view text, monitor_choice& into) noexcept {
  auto chosen = monitor_choice::automatic;  // stands alone, and is not combined with others
  for (std::size_t begin = 0; text != automatic_word && begin <= text.size();) {
    const auto end = std::min(text.find('+', begin), text.size());
    monitor_choice one{};
    if (!read_word(monitor_words, text.substr(begin, end - begin), one)) {
      return fail(errc::invalid_argument,
                  "expected automatic, or one or more of manual, hooks, userfaultfd, bpf, none, joined with +");
    }
    chosen = chosen | one;
    begin = end + 1;
  }
  into = chosen;
  return {};
}

result<void> read(std::string_view text, std::size_t& into) noexcept {
  const auto size = parse_size(text);
  if (!size) return tl::unexpected(size.error());
  into = *size;
  return {};
}

result<void> read(std::string_view text, std::uint32_t& into) noexcept {
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || end != text.data() + text.size()) {
    return fail(errc::invalid_argument, "expected a number");
  }
  into = number;
  return {};
}

result<void> read(std::string_view text, milliseconds& into) noexcept {
  const auto duration = parse_duration(text, milliseconds(1));
  if (!duration || *duration % milliseconds(1) != duration->zero() || *duration > longest_timeout)
    return fail(errc::invalid_argument,
                "expected whole milliseconds, or a number followed by ms, s, min or h, at most a year");
  into = std::chrono::duration_cast<milliseconds>(*duration);
  return {};
}

result<void> read(std::string_view text, std::shared_ptr<node_budget>& into) noexcept try {
  if (text == no_budget_word) {
    into = nullptr;
    return {};
  }
  auto opened = node_budget::open_text(text);
  if (!opened) return tl::unexpected(opened.error());
  into = *std::move(opened);
  return {};
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for the node's budget");
}

std::string print(bool value) { return word_for(switch_words, value); }
std::string print(when_full value) { return word_for(full_words, value); }
std::string print(close_policy value) { return word_for(close_words, value); }
std::string print(merge_policy value) { return word_for(merge_words, value); }

std::string print(monitor_choice value) {
  std::string text;
  for (const auto& [word, one] : monitor_words) {
    if (contains_any(value, one)) text.append(text.empty() ? "" : "+").append(word);
  }
  return text.empty() ? std::string(automatic_word) : text;
}

std::string print(std::uint32_t value) { return std::to_string(value); }
std::string print(milliseconds value) { return std::to_string(value.count()); }

std::string print(std::size_t value) {
  if (value == unlimited) return "unlimited";
  constexpr std::string_view units = "KMGT";
  std::size_t unit = 0;
  while (unit < units.size() && value != 0 && value % 1024 == 0) {
    value /= 1024;
    ++unit;
  }
  return std::to_string(value) + (unit == 0 ? std::string() : std::string(1, units[unit - 1]));
}

std::string print(const std::shared_ptr<node_budget>& value) {
  return value == nullptr ? std::string(no_budget_word) : value->name() + ":" + print(value->max_bytes());
}

template <auto Member>
constexpr setting row(std::string_view name, std::string_view comment) noexcept {
  return {name, comment, [](cache_options& into, std::string_view value) noexcept { return read(value, into.*Member); },
          [](const cache_options& from) { return print(from.*Member); }};
}

using o = cache_options;
constexpr std::array<setting, 22> table{
    row<&o::retain>("PINFOLD_RETAIN", "keep unused registrations for reuse: on, off"),
    row<&o::max_bytes>("PINFOLD_MAX_BYTES",
                       "maximum bytes registered at any time: a number with K, M, G or T, or unlimited"),
    row<&o::max_count>("PINFOLD_MAX_COUNT", "maximum registrations open at any time: a number, or unlimited"),
    row<&o::node_budget>("PINFOLD_NODE_BUDGET",
                         "the account of registered bytes that processes share: its name, or name:maximum with K, M, G "
                         "or T; or none"),
    row<&o::merge>(
        "PINFOLD_MERGE",
        "what is registered for a request that overlaps registrations: none (what was asked for), rights (with "
        "registrations around it that lack access), overlaps (with all that overlap)"),
    row<&o::merge_limit>(
        "PINFOLD_MERGE_LIMIT",
        "size beyond which no registration grows by merging: a number with K, M, G or T, or unlimited"),
    row<&o::monitor>("PINFOLD_MONITOR",
                     "the monitors of local memory: automatic, or one or more of manual, hooks, userfaultfd, bpf, "
                     "none, joined with +"),
    row<&o::strict>("PINFOLD_STRICT", "ask userfaultfd before every hit whether an event is under way: on, off"),
    row<&o::program_data>(
        "PINFOLD_PROGRAM_DATA",
        "keep registrations of programs' and libraries' text and data, if no process truncates the files: on, "
        "off"),
    row<&o::audit_one_in>(
        "PINFOLD_AUDIT",
        "compare the mapped pages with the registered pages at one hit in N: a number N, or 0 for never"),
    row<&o::full>("PINFOLD_WHEN_FULL",
                  "what to do when the budget is used up and no registration is idle: fail, wait, bypass"),
    row<&o::closes>("PINFOLD_CLOSES", "when unused registrations are closed: immediate, deferred"),
    row<&o::reaper>("PINFOLD_REAPER",
                    "run a thread that does deferred closes, and closes invalidated registrations and those idle too "
                    "long: on, off"),
    row<&o::shards>("PINFOLD_SHARDS",
                    "the parts in which a cache of local memory is divided, for several threads: a number, at most 64; "
                    "0 for eight per processor"),
    row<&o::serial>("PINFOLD_SERIAL", "call the driver on one thread at a time: on, off"),
    row<&o::idle_timeout>("PINFOLD_IDLE_TIMEOUT_MS",
                          "close imports that are idle for this long, as their exporter may have freed them, in "
                          "milliseconds; 0 for never"),
    row<&o::full_timeout>("PINFOLD_FULL_TIMEOUT_MS", "longest wait for room in the budget, in milliseconds"),
    row<&o::conflict_timeout>("PINFOLD_CONFLICT_TIMEOUT_MS",
                              "longest wait for a conflicting use to end, in milliseconds"),
    row<&o::wait_timeout>("PINFOLD_WAIT_TIMEOUT_MS",
                          "longest wait for another thread's open or close, in milliseconds"),
    row<&o::drain_timeout>("PINFOLD_DRAIN_TIMEOUT_MS",
                           "longest wait for leases and closes when a cache is destroyed, in milliseconds"),
    row<&o::entry_statistics>("PINFOLD_ENTRY_STATISTICS", "count the hits of each entry exactly: on, off"),
    row<&o::statistics_at_exit>("PINFOLD_STATISTICS_AT_EXIT", "report the counters when a cache is destroyed: on, off"),
};

}  // namespace

std::span<const setting> all_settings() noexcept { return table; }

const setting* find_setting(std::string_view name) noexcept {
  const auto found = std::find_if(table.begin(), table.end(), [&](const setting& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace pinfold::detail
