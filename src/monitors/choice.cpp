// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/choice.hpp"

#include "monitors/hints.hpp"

namespace pinfold::monitors {

namespace {

// A monitor of a later version, or no valid value at all: no monitor here would tell what it stands for.
bool names_unknown(monitor_choice wanted) noexcept {
  constexpr auto known = monitor_choice::explicit_ | monitor_choice::hooks | monitor_choice::userfaultfd |
                         monitor_choice::bpf | monitor_choice::none;
  return (static_cast<unsigned>(wanted) & ~static_cast<unsigned>(known)) != 0;
}

}  // namespace

chosen choose(monitor_choice wanted, bool with_hints) {
  const bool automatic = wanted == monitor_choice::automatic;
  watch::monitor_set::members members;
  std::string names = includes(wanted, monitor_choice::explicit_) ? "explicit" : "";
  std::string problems = includes(wanted, monitor_choice::none) ? "switched off" : "";
  if (names_unknown(wanted)) problems += std::string(problems.empty() ? "" : "; ") + "unknown bits in monitor_choice";
  for (const kind& one : all_kinds()) {
    if (automatic ? !one.by_default : !includes(wanted, one.choice)) continue;
    auto found = find(one);
    if (found.monitor == nullptr) {
      problems += (problems.empty() ? "" : "; ") + (one.name + (": " + found.why_not));
    } else {
      members.push_back(std::move(found.monitor));
      names += (names.empty() ? "" : "+") + std::string(one.name);
    }
  }
  const bool keeps = automatic ? !members.empty() : problems.empty();
  if (!keeps) return {false, nullptr, "none (" + problems + ")", nullptr, false};
  auto text = problems.empty() ? names : names + " (" + problems + ")";
  if (members.empty()) return {true, nullptr, std::move(text), nullptr, false};
  // Without hooks, an address that another thread gets at once may be asked for before userfaultfd's event is read.
  const bool strict = automatic && names == "userfaultfd";
  if (strict) text += ", strict";
  auto hints = with_hints ? hint_allocator() : nullptr;
  if (with_hints) text += hints != nullptr ? ", allocator hints" : ", no allocator hints: of no effect here";
  return {true, std::make_shared<const watch::monitor_set>(std::move(members)), std::move(text), std::move(hints),
          strict};
}

}  // namespace pinfold::monitors
