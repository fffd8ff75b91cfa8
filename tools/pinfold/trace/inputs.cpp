// SPDX-License-Identifier: BSD-3-Clause
#include "trace/inputs.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"

#include <pinfold/settings.hpp>
#include <pinfold/trace_file.hpp>

#include <charconv>
#include <fmt/format.h>

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
