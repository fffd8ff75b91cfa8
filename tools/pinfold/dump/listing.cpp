// SPDX-License-Identifier: BSD-3-Clause
#include "dump/listing.hpp"

#include "cli/printable.hpp"
#include "cli/report.hpp"
#include "cli/sizes.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <utility>

namespace tool {
namespace {

using pinfold::dumped_cache;
using pinfold::dumped_entry;
using pinfold::process_dump;

constexpr std::array<const char*, 5> reasons{"cold", "invalidated", "access", "extent", "evicted"};

const char* name_of(pinfold::when_full what) {
  switch (what) {
    case pinfold::when_full::fail: return "fail";
    case pinfold::when_full::wait: return "wait";
    case pinfold::when_full::bypass: return "bypass";
  }
  return "unknown";
}

const char* name_of(pinfold::close_policy what) {
  switch (what) {
    case pinfold::close_policy::immediate: return "immediate";
    case pinfold::close_policy::deferred: return "deferred";
  }
  return "unknown";
}

std::string letters(std::initializer_list<std::pair<bool, char>> flags) {
  std::string text;
  for (const auto& [set, letter] : flags)
    if (set) text += letter;
  return text.empty() ? "-" : text;
}

std::string access_of(const dumped_entry& one) {
  const auto has = [&](pinfold::access_flags right) { return contains_all(one.access, right); };
  using enum pinfold::access_flags;
  return letters({{has(local_read), 'r'},
                  {has(local_write), 'w'},
                  {has(remote_read), 'R'},
                  {has(remote_write), 'W'},
                  {has(remote_atomic), 'A'}});
}

std::string flags_of(const dumped_entry& one) {
  return letters({{one.persistent, 'p'},
                  {one.bypass, 'b'},
                  {one.unshared, 'u'},
                  {one.doomed, 'd'},
                  {one.stale, 's'},
                  {one.in_driver, 'o'}});
}

std::string short_state(pinfold::entry_state state) {
  return state == pinfold::entry_state::quarantined ? "quarant." : pinfold::name_of(state);
}

std::string short_age(const dumped_entry& one) {
  if (one.state == pinfold::entry_state::opening) return "-";
  const auto seconds = std::chrono::duration<double>(one.age).count();
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  if (seconds < 6000) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 360000) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86400);
}

std::string short_count(std::uint64_t number) {
  if (number < 100000) return fmt::format("{}", number);
  if (number < 100000000) return fmt::format("{}k", number / 1000);
  return fmt::format("{}M", number / 1000000);
}

std::string limit_text(std::uint64_t number, bool size) {
  if (number == pinfold::unlimited) return "unlimited";
  return size ? size_text(number) : fmt::format("{}", number);
}

template <class Pairs>
std::string nonzero(const Pairs& counts) {
  std::string text;
  for (const auto& [name, value] : counts)
    if (value != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(name), value);
  return text.empty() ? "none" : text;
}

auto remembered(const dumped_cache& cache) {
  std::vector<std::pair<std::string, std::uint64_t>> counts;
  for (std::size_t i = 0; i < reasons.size(); ++i) counts.emplace_back(reasons[i], cache.remembered[i]);
  return counts;
}

// Breaks the text at blanks into lines of 80 columns, indented below the first.
std::string filled(const std::string& head, std::string_view text) {
  constexpr std::size_t width = 80;
  std::string lines = head;
  std::size_t column = head.size();
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (column > head.size() && column + 1 + word.size() > width) {
      lines.append("\n").append(head.size(), ' ');
      column = head.size();
    }
    if (column > head.size()) lines += ' ';
    column += word.size() + (column > head.size() ? 1 : 0);
    lines.append(word);
  }
  return lines + "\n";
}

std::string notes_of(const dumped_cache& cache) {
  std::string text;
  if (cache.of_parent) text += "  belongs to the parent process: this child of fork(2) cannot use it\n";
  if (cache.ended) text += "  destroyed; its leases are still out\n";
  if (!cache.complete) text += "  not all entries could be read: the process changed meanwhile, or is damaged\n";
  return text;
}

std::string details_of(const dumped_cache& cache) {
  const auto leases = [&] {
    std::uint64_t all = 0;
    for (const auto& one : cache.entries) all += one.leases;
    return all;
  }();
  auto text = filled("  holds:    ", fmt::format("{} of {} entries, {} of {}, {} leases", cache.entries_now,
                                                 limit_text(cache.max_count, false), size_text(cache.bytes_now),
                                                 limit_text(cache.max_bytes, true), leases));
  text += filled("  options:  ", fmt::format("retain {}, when full {}, closes {}, strict {}, reaper {}",
                                             cache.retain ? "on" : "off", name_of(cache.full), name_of(cache.closes),
                                             cache.strict ? "on" : "off", cache.reaper ? "on" : "off"));
  text += filled("  shards:   ", fmt::format("{}; a thread holds the mutex of {}", cache.shards, cache.locked_shards));
  text += filled("  counters: ", nonzero(cache.counters));
  text += filled("  closed:   ", nonzero(remembered(cache)));
  return text + notes_of(cache);
}

std::size_t shown(const dumped_cache& cache, std::size_t limit) {
  return limit == 0 ? cache.entries.size() : std::min(limit, cache.entries.size());
}

json json_of(const dumped_entry& one, bool import) {
  json row{{"begin", fmt::format("{:#x}", one.covered.begin)},
           {"end", fmt::format("{:#x}", one.covered.end)},
           {"bytes", one.bytes},
           {"state", pinfold::name_of(one.state)},
           {"access", access_of(one)},
           {"leases", one.leases},
           {"hits", one.hits},
           {"age_ns", one.age.count()},
           {"owner", one.owner},
           {"owner_lives", one.owner_lives},
           {"persistent", one.persistent},
           {"bypass", one.bypass},
           {"unshared", one.unshared},
           {"doomed", one.doomed},
           {"in_driver", one.in_driver},
           {"hittable", one.hittable},
           {"stale", one.stale},
           {"record", fmt::format("{:#x}", one.record)},
           {"entry", fmt::format("{:#x}", one.entry)}};
  if (import) row["peer"] = one.peer.value;
  if (import) row["data"] = fmt::format("{:#x}", one.data);
  return row;
}

json without_entries(const dumped_cache& cache) {
  json counters = json::object();
  for (const auto& [name, value] : cache.counters) counters[printable(name)] = value;
  json closed = json::object();
  for (const auto& [name, value] : remembered(cache)) closed[name] = value;
  json revoked = json::array();
  for (const auto record : cache.revoked) revoked.push_back(fmt::format("{:#x}", record));
  return {{"name", printable(cache.name)},
          {"registrar", printable(cache.registrar)},
          {"release", printable(cache.release)},
          {"engine", fmt::format("{:#x}", cache.engine)},
          {"imports", cache.imports},
          {"ended", cache.ended},
          {"of_parent", cache.of_parent},
          {"complete", cache.complete},
          {"retain", cache.retain},
          {"strict", cache.strict},
          {"reaper", cache.reaper},
          {"when_full", name_of(cache.full)},
          {"closes", name_of(cache.closes)},
          {"max_bytes", cache.max_bytes},
          {"max_count", cache.max_count},
          {"bytes_now", cache.bytes_now},
          {"entries_now", cache.entries_now},
          {"shards", cache.shards},
          {"locked_shards", cache.locked_shards},
          {"counters", counters},
          {"remembered", closed},
          {"entries_seen", cache.entries.size()},
          {"revoked", revoked}};
}

std::string text_of(const json& object, int indent) {
  return object.dump(indent, ' ', false, json::error_handler_t::replace);
}

// Returns an object, with `margin` in front of its lines, that begins one more member: an array.
std::string with_array(const json& object, std::string_view name, std::string_view margin) {
  auto text = text_of(object, 2);
  text.resize(text.size() - 2);  // without its last line
  text.append(",\n  \"").append(name).append("\": [");
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) text.insert(at + 1, margin);
  return text.insert(0, margin);
}

}  // namespace

void sort_entries(std::vector<dumped_entry>& entries, std::string_view order) {
  const auto key = [&](const dumped_entry& one) -> std::uint64_t {
    if (order == "bytes") return one.bytes;
    if (order == "age") return static_cast<std::uint64_t>(one.age.count());
    if (order == "hits") return one.hits;
    return order == "leases" ? one.leases : 0;
  };
  std::ranges::sort(entries, [&](const dumped_entry& one, const dumped_entry& other) {
    if (key(one) != key(other)) return key(one) > key(other);
    return std::pair(one.peer.value, one.covered.begin) < std::pair(other.peer.value, other.covered.begin);
  });
}

void keep_entries_at(process_dump& in, std::uintptr_t address) {
  const auto contains = [&](const dumped_entry& one) {
    return address - one.covered.begin < one.covered.size() || address - one.data < one.covered.size();
  };
  for (auto& cache : in.caches) std::erase_if(cache.entries, std::not_fn(contains));
  std::erase_if(in.caches, [](const dumped_cache& cache) { return cache.entries.empty(); });
}

std::string entry_titles() {
  return fmt::format("  {:<25} {:>8} {:<8} {:<3} {:>4} {:>5} {:>6} {:>7}  {}\n", "range", "bytes", "state", "acc",
                     "pins", "hits", "age", "owner", "flg");
}

std::string entry_line(const dumped_entry& one) {
  return fmt::format("  {:<25} {:>8} {:<8} {:<3} {:>4} {:>5} {:>6} {:>7}{} {}\n",
                     fmt::format("{:x}-{:x}", one.covered.begin, one.covered.end), size_text(one.bytes),
                     short_state(one.state), access_of(one), one.leases, short_count(one.hits), short_age(one),
                     one.owner, one.owner_lives ? ' ' : '!', flags_of(one));
}

std::string as_text(const process_dump& found, std::size_t limit, std::optional<std::uintptr_t> address) {
  std::string text =
      found.core ? fmt::format("core file of process {} ({}); ages are those when the newest entry was opened\n",
                               found.process, printable(found.command))
                 : fmt::format("process {} ({}), {}\n", found.process, printable(found.command),
                               found.stopped ? "read while it was stopped" : "read while it ran");
  if (found.copies > 1) text += fmt::format("{} copies of the library\n", found.copies);
  if (found.unreadable > 0)
    text += fmt::format("{} copies of the library cannot be read: another release, or damaged\n", found.unreadable);
  if (found.copies > found.unreadable && found.caches.empty())
    text += address ? fmt::format("no entry contains {:#x}\n", *address) : "no cache\n";
  for (const auto& cache : found.caches) {
    text += fmt::format("\ncache \"{}\", {}\n", printable(cache.name), printable(cache.registrar));
    text += address ? notes_of(cache) : details_of(cache);
    if (cache.entries.empty()) continue;
    text += entry_titles();
    for (std::size_t i = 0; i < shown(cache, limit); ++i) text += entry_line(cache.entries[i]);
    if (const auto more = cache.entries.size() - shown(cache, limit); more > 0)
      text += fmt::format("  and {} more\n", more);
  }
  return text;
}

void print_json(const process_dump& found, std::size_t limit) {
  constexpr std::size_t sensible_write = 65536;
  auto text = with_array({{"core", found.core},
                          {"process", found.process},
                          {"command", printable(found.command)},
                          {"stopped", found.stopped},
                          {"copies", found.copies},
                          {"unreadable", found.unreadable}},
                         "caches", "");
  for (const auto& cache : found.caches) {
    text += &cache == &found.caches.front() ? "\n" : ",\n";
    text += with_array(without_entries(cache), "entries", "    ");
    for (std::size_t i = 0; i < shown(cache, limit); ++i) {
      text.append(i == 0 ? "\n        " : ",\n        ").append(text_of(json_of(cache.entries[i], cache.imports), -1));
      if (text.size() < sensible_write) continue;
      fmt::print("{}", text);
      text.clear();
    }
    text += "\n      ]\n    }";
  }
  fmt::print("{}\n  ]\n}}\n", text);
}

}  // namespace tool
