// SPDX-License-Identifier: BSD-3-Clause
#include "info/node_budget.hpp"

#include "cli/failure.hpp"
#include "cli/printable.hpp"
#include "cli/report.hpp"
#include "cli/sizes.hpp"

#include <pinfold/node_budget.hpp>

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <utility>

namespace tool {

namespace {

json as_json_of(const std::string& name, const pinfold::node_budget_state& now) {
  json members = json::array();
  for (const auto& one : now.members) {
    members.push_back({{"pid", one.pid},
                       {"name", printable(one.name)},
                       {"bytes", one.bytes},
                       {"waiting_ms", static_cast<std::int64_t>(one.waiting.count())},
                       {"asked", one.asked},
                       {"refused", one.refused},
                       {"ended", one.ended}});
  }
  return {
      {"name", name}, {"max_bytes", now.max_bytes}, {"used_bytes", now.used_bytes}, {"members", std::move(members)}};
}

std::string waiting_text(const pinfold::node_budget_member& one) {
  if (one.ended) return "ended";
  return one.waiting.count() == 0 ? std::string("-")
                                  : fmt::format("{} ms for {}", one.waiting.count(), size_text(one.asked));
}

void print(const std::string& name, const pinfold::node_budget_state& now) {
  fmt::print("Node budget {}: {} of {} taken\n\n", name, size_text(now.used_bytes), size_text(now.max_bytes));
  fmt::print("  {:>10}  {:<31}  {:>12}  {:>8}  {}\n", "pid", "member", "taken", "refused", "waiting");
  for (const auto& one : now.members) {
    fmt::print("  {:>10}  {:<31}  {:>12}  {:>8}  {}\n", one.pid, printable(one.name), size_text(one.bytes), one.refused,
               waiting_text(one));
  }
  if (std::ranges::any_of(now.members, &pinfold::node_budget_member::ended))
    fmt::print("\nended: the process died; what it had comes back when a member needs room\n");
}

}  // namespace

void show_node_budget(const std::string& name, bool as_json) {
  const auto file = need(pinfold::node_budget::file_of(name), "the node budget " + name);
  const auto now = need(pinfold::node_budget::inspect(name), fmt::format("the node budget {} ({})", name, file));
  if (as_json) {
    fmt::print("{}\n", as_json_of(name, now).dump(2));
  } else {
    print(name, now);
  }
}

}  // namespace tool
