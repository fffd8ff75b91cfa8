// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/selection/selection.hpp"
#include "monitors/self_test/self_test.hpp"
#include "os/no_cancellation.hpp"

#include <pinfold/monitors/report.hpp>

namespace pinfold {

namespace {

using monitors::kind;

hazard_report report_of(const monitors::probe& event, const invalidation::monitor_set& all) {
  monitors::sources seen = 0;
  hazard_report found{event.event, hazard_report::outcome::unknown_here, {}};
  found.what = static_cast<hazard_report::outcome>(event.run(all, seen));
  for (const kind& one : monitors::all_kinds())
    if ((seen & monitors::only(one.source)) != 0) found.covered_by.emplace_back(one.name);
  return found;
}

}  // namespace

monitors_report report_monitors() {
  const detail::no_cancellation whole;
  monitors_report made;
  invalidation::monitor_set::members members;
  for (const kind& one : monitors::all_kinds()) {
    auto found = monitors::find(one);
    made.monitors.push_back({one.name, found.monitor != nullptr, found.why_not});
    if (found.monitor != nullptr) members.push_back(std::move(found.monitor));
  }
  const invalidation::monitor_set all(std::move(members));
  for (const auto list : {monitors::system_calls(), monitors::allocator_habits()})
    for (const auto& event : list) made.hazards.push_back(report_of(event, all));
  made.automatic = monitors::choose(monitor_choice::automatic).text;
  return made;
}

}  // namespace pinfold
