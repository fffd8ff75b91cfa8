// SPDX-License-Identifier: BSD-3-Clause
#include "trace/inputs.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"

#include <pinfold/limits.hpp>
#include <pinfold/settings.hpp>
#include <pinfold/trace_file.hpp>

#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
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

// By the number of the cache. They are on lines that other readers take for comments.
std::vector<recorded_budget> budgets_in(const std::string& path) {
  std::vector<recorded_budget> all;
  std::unordered_map<std::string, std::size_t> numbers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const bool is_cache = line.starts_with("cache ");
    if (!is_cache && !line.starts_with("# budget ")) continue;
    std::istringstream words(line.substr(line.find(' ', 2) + 1));
    std::string called;
    std::string bytes;
    std::string count;
    words >> called >> bytes >> count;
    if (is_cache) {
      numbers[called] = all.size();
      all.emplace_back();
    } else if (const auto found = numbers.find(called); found != numbers.end()) {
      all[found->second] = {limit_of(bytes), limit_of(count)};
    }
  }
  return all;
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
  if (all.empty()) throw usage_failure(fmt::format("{}: the trace has no requests", path));
  const auto budgets = budgets_in(path);
  for (auto& one : all)
    if (one.number < budgets.size()) one.budget = budgets[one.number];
  return all;
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
