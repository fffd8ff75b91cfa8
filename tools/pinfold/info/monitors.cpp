// SPDX-License-Identifier: BSD-3-Clause
#include "info/parts.hpp"

#include <pinfold/monitors/report.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

namespace tool {
namespace {

using outcome = pinfold::hazard_report::outcome;

json happens(outcome what) {
  if (what == outcome::unknown_here) return nullptr;
  return what == outcome::gone;
}

void append(std::string& list, const std::string& more) { list += (list.empty() ? "" : ", ") + more; }

// Returns the group of lines that a hazard belongs to.
std::string told_by(const json& hazard) {
  if (hazard.at("happens").is_null()) return "not possible here";
  if (!hazard.at("happens").get<bool>()) return "unmaps nothing";
  std::string names;
  for (const auto& one : hazard.at("covered_by")) append(names, one.get<std::string>());
  return names.empty() ? "manual calls only" : names;
}

void print_hazards(const json& hazards) {
  std::vector<std::pair<std::string, std::string>> groups;
  std::size_t width = 0;
  for (const auto& one : hazards) {
    const auto who = told_by(one);
    width = std::max(width, who.size());
    auto found = std::ranges::find(groups, who, &std::pair<std::string, std::string>::first);
    if (found == groups.end()) found = groups.insert(found, {who, ""});
    append(found->second, one.at("event").get<std::string>());
  }
  for (const auto& [who, events] : groups) fmt::print("{}", paragraph(fmt::format("  {:<{}}  ", who, width), events));
}

}  // namespace

json monitor_facts() {
  const auto report = pinfold::report_monitors();
  json facts{{"monitors", json::array()}, {"automatic", report.automatic}, {"hazards", json::array()}};
  for (const auto& one : report.monitors)
    facts["monitors"].push_back({{"name", one.name}, {"proven", one.proven}, {"why_not", one.why_not}});
  for (const auto& one : report.hazards)
    facts["hazards"].push_back({{"event", one.event}, {"happens", happens(one.what)}, {"covered_by", one.covered_by}});
  return facts;
}

void print_monitors(const json& facts) {
  fmt::print("\nMonitors\n");
  for (const auto& one : facts.at("monitors")) {
    const auto proven = one.at("proven").get<bool>();
    fmt::print("{}", paragraph(fmt::format("  {:<12}  ", one.at("name").get<std::string>()),
                               proven ? "passed its self-test" : one.at("why_not").get<std::string>()));
  }
  fmt::print("{}", paragraph(fmt::format("  {:<12}  ", "manual"),
                             "always: cache::invalidate, announce_gone; for imports import_cache::invalidate, "
                             "import_cache::drop_peer"));
  fmt::print("{}",
             paragraph(fmt::format("  {:<12}  ", "automatic"), "takes " + facts.at("automatic").get<std::string>()));
  if (facts.at("automatic").get<std::string>().find("hooks alone: ") != std::string::npos)
    fmt::print(
        "{}",
        paragraph(fmt::format("  {:<12}  ", ""),
                  "(hooks alone suffice in a program without such code; this tool contains such code to "
                  "measure its cost. For your program, call its cache's monitors(): docs/operate/containers.md)"));
  fmt::print("\nMonitors that see memory unmapped or replaced\n");
  print_hazards(facts.at("hazards"));
}

}  // namespace tool
