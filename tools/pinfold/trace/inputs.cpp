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
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

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

// They are on lines that other readers take for comments.
class note_gatherer {
 public:
  // `caches`: the names of the caches so far. A name that comes again is of another cache.
  void name(const std::vector<std::string>& caches) {
    for (std::size_t i = all_.size(); i < caches.size(); ++i) {
      numbers_[caches[i].substr(0, caches[i].find(' '))] = i;
      all_.push_back({caches[i], {}, {}});
    }
  }
  void add(std::string_view comment, const std::vector<std::string>& caches) {
    name(caches);
    std::istringstream words{std::string(comment)};
    std::string kind;
    std::string called;
    words >> kind >> called;
    if (kind == "cut") ++cut_lines_;
    if (const auto found = numbers_.find(called); found != numbers_.end()) add_note(kind, words, all_[found->second]);
  }
  [[nodiscard]] std::uint64_t cut_lines() const noexcept { return cut_lines_; }
  [[nodiscard]] std::vector<recorded_notes> finish() { return std::move(all_); }

 private:
  std::vector<recorded_notes> all_;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::uint64_t cut_lines_ = 0;
};

}  // namespace

const cost_model* costs_named(const std::string& name) {
  for (const auto& one : all_cost_models())
    if (name == one.name) return &one;
  return nullptr;
}

recorded_file read_recorded(const std::string& path, const cost_model* costs) {
  trace_gatherer gatherer;
  note_gatherer notes;
  const auto read = pinfold::visit_trace(
      path,
      [&](const auto& request, const auto& caches) {
        notes.name(caches);
        gatherer.add(request, caches);
      },
      [&](std::string_view comment, const auto& caches) { notes.add(comment, caches); });
  if (!read) throw usage_failure(fmt::format("{}: {}", read.error().where, pinfold::describe(read.error().cause)));
  recorded_file all{gatherer.finish(costs), notes.finish(), notes.cut_lines()};
  if (all.cut_lines > 0)
    fmt::print(stderr, "pinfold: {}: lines that killed processes left incomplete, and that are skipped: {}\n", path,
               all.cut_lines);
  if (all.caches.empty()) {
    const auto failed = failures_text(all.notes);
    throw usage_failure(
        fmt::format("{}: the trace has no requests{}{}", path, failed.empty() ? "" : " but failed ones: ", failed));
  }
  return all;
}

std::vector<recorded_notes> read_notes(const std::string& path) {
  note_gatherer notes;
  const auto read = pinfold::visit_trace(
      path, [&](const auto& /*request*/, const auto& caches) { notes.name(caches); },
      [&](std::string_view comment, const auto& caches) { notes.add(comment, caches); });
  if (!read) throw failure(fmt::format("{}: {}", read.error().where, pinfold::describe(read.error().cause)));
  return notes.finish();
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
