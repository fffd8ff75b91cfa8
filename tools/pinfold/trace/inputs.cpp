// SPDX-License-Identifier: BSD-3-Clause
#include "trace/inputs.hpp"

#include "cli/failure.hpp"
#include "cli/printable.hpp"
#include "cli/sizes.hpp"

#include <pinfold/limits.hpp>
#include <pinfold/settings.hpp>
#include <pinfold/trace_file.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>
#include <unordered_map>

namespace tool {
namespace {

[[noreturn]] void refuse_budget(const std::string& text) {
  throw usage_failure(fmt::format("--budget {}: expected 25%, bytes such as 64M, or a number of registrations", text));
}

std::size_t share_of(const std::string& text, std::size_t footprint) {
  double percent = 0;
  const auto* last = text.data() + text.size() - 1;
  const auto [end, code] = std::from_chars(text.data(), last, percent);
  if (code != std::errc{} || end != last || !(percent > 0) || percent > 100) refuse_budget(text);
  return static_cast<std::size_t>(static_cast<double>(footprint) * percent / 100);
}

std::size_t limit_of(const std::string& text) {
  std::size_t limit = pinfold::unlimited;  // also of the word
  std::from_chars(text.data(), text.data() + text.size(), limit);
  return limit;
}

void add_note(const std::string& kind, std::istringstream& words, recorded_notes& to) {
  std::array<std::string, 4> fields;
  for (auto& one : fields) words >> one;
  if (kind == "budget") to.budget = {limit_of(fields[0]), limit_of(fields[1])};
  if (kind == "failed") ++to.failed[printable(fields[3])];
}

}  // namespace

const cost_model* costs_named(const std::string& name) {
  for (const auto& one : all_cost_models())
    if (name == one.name) return &one;
  return nullptr;
}

std::vector<recorded_cache> read_recorded(const std::string& path, const cost_model* costs) {
  trace_gatherer gatherer;
  const auto read =
      pinfold::visit_trace(path, [&](const auto& request, const auto& caches) { gatherer.add(request, caches); });
  if (!read) throw usage_failure(fmt::format("{}: {}", read.error().where, pinfold::describe(read.error().cause)));
  auto all = gatherer.finish(costs);
  if (all.empty()) {
    const auto failed = failures_text(read_notes(path));
    throw usage_failure(
        fmt::format("{}: the trace has no requests{}{}", path, failed.empty() ? "" : " but failed ones: ", failed));
  }
  return all;
}

// They are on lines that other readers take for comments.
std::vector<recorded_notes> read_notes(const std::string& path) {
  std::vector<recorded_notes> all;
  std::unordered_map<std::string, std::size_t> numbers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cache ") && !line.starts_with("# ")) continue;
    std::istringstream words(line.substr(line.front() == '#' ? 2 : 0));
    std::string kind;
    std::string called;
    words >> kind >> called;
    if (line.front() == 'c') {
      numbers[called] = all.size();
      all.push_back({line.substr(kind.size() + 1), {}, {}});
    } else if (const auto found = numbers.find(called); found != numbers.end()) {
      add_note(kind, words, all[found->second]);
    }
  }
  return all;
}

std::string failures_text(const std::vector<recorded_notes>& of) {
  std::map<std::string, std::uint64_t> all;
  for (const auto& cache : of)
    for (const auto& [reason, number] : cache.failed) all[reason] += number;
  std::string text;
  for (const auto& [reason, number] : all) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", number, reason);
  return text;
}

replay_budget parse_budget(const std::string& text, const workload& of) {
  if (text.ends_with('%')) {
    const auto room = share_of(text, of.footprint());
    return {fmt::format("{} = {}", text, size_text(room)), false, room};
  }
  const auto size = pinfold::parse_size(text);
  if (!size || *size == 0) refuse_budget(text);
  const bool counted = text.find_first_not_of("0123456789") == std::string::npos;
  return {counted ? text + " registrations" : size_text(*size), counted, *size};
}

}  // namespace tool
