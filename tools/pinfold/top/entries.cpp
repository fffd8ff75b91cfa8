// SPDX-License-Identifier: BSD-3-Clause
#include "top/entries.hpp"

#include <pinfold/error.hpp>

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace tool::top {
namespace {

// A page has '?' for what is not printable.
bool is_same(std::string_view dumped, std::string_view on_page) {
  return std::ranges::equal(
      dumped, on_page, [](char one, char other) { return one == other || (other == '?' && (one < ' ' || one > '~')); });
}

// The page may be of a process in another PID namespace, whose number means another process here.
bool is_here(const pinfold::observation::process_snapshot& page) {
  std::ifstream file(fmt::format("/proc/{}/stat", page.pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream rest(text.substr(name_end + 1));
  std::string word;
  constexpr int fields = 20;  // from the state, field 3, to the start time, field 22
  for (int i = 0; i < fields; ++i) rest >> word;
  return rest && word == std::to_string(page.start_time);
}

cache_entries only_note(std::string note) { return {{}, std::move(note), {}}; }

}  // namespace

cache_entries entries_of(const process_sample& process, const cache_sample& cache) {
  if (process.page.state == pinfold::observation::process_state::ended)
    return only_note("The process ended: its entries are gone.");
  if (cache.page.ended) return only_note("The cache ended.");
  if (!is_here(process.page))
    return only_note("The process is in another PID namespace, and cannot be read from here.");
  const auto start = std::chrono::steady_clock::now();
  auto dump = pinfold::dump_process(process.page.pid);
  if (!dump) return only_note(pinfold::describe(dump.error()));
  cache_entries found;
  std::size_t caches = 0;
  bool complete = true;
  for (auto& one : dump->caches) {
    if (one.ended || !is_same(one.name, cache.page.name) || !is_same(one.registrar, cache.page.kind)) continue;
    ++caches;
    complete = complete && one.complete;
    std::ranges::move(one.entries, std::back_inserter(found.all));
  }
  if (caches == 0) found.note = "The cache was not found in the memory of the process.";
  if (!complete) found.note = "Not all entries could be read: the process changed meanwhile, or is damaged.";
  if (caches > 1) found.note += fmt::format("{} caches have this name and registrar: entries of all.", caches);
  found.reading = std::chrono::steady_clock::now() - start;
  return found;
}

}  // namespace tool::top
