// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/selection/selection.hpp"

#include "monitors/allocator_tuning.hpp"
#include "monitors/selection/hooks_alone.hpp"
#include "os/check.hpp"

#include <cstdlib>

namespace pinfold::monitors {

namespace {

// Returns whether `wanted` has unknown bits, of a later version's monitor or invalid: no monitor here would cover them.
bool names_unknown(monitor_choice wanted) noexcept {
  constexpr auto known = monitor_choice::manual | monitor_choice::hooks | monitor_choice::userfaultfd |
                         monitor_choice::bpf | monitor_choice::none;
  return (static_cast<unsigned>(wanted) & ~static_cast<unsigned>(known)) != 0;
}

// The programs in the kernel slow down every process of the system, so they are used only where configured.
proven bpf_where_configured() {
  if (::secure_getenv("PINFOLD_MONITORD") == nullptr) return {};
  for (const kind& one : all_kinds())
    if (one.choice == monitor_choice::bpf) return find(one);
  return {};
}

void add(std::string& list, const char* between, const std::string& more) {
  list += (list.empty() ? "" : between) + more;
}

// Hooks do not see a system call that other code makes by an instruction of its own. If there is such code, another
// monitor must see it; otherwise nothing is kept (R54).
void complete_hooks(bool automatic, invalidation::monitor_set::members& members, std::string& names,
                    std::string& problems) {
  PINFOLD_ASSERT(members.size() == 1 && members.front() != nullptr, "the hooks are the only monitor");
  auto alone = trust_hooks_alone(members.front());
  if (alone.monitor != nullptr) {
    members.front() = std::move(alone.monitor);
    return;
  }
  add(problems, "; ", "hooks alone: " + alone.why_not);
  auto other = automatic ? bpf_where_configured() : proven{};
  if (!other.why_not.empty()) add(problems, "; ", "bpf: " + other.why_not);
  if (other.monitor == nullptr) return members.clear();
  members.push_back(std::move(other.monitor));
  names += "+bpf";
}

}  // namespace

chosen choose(monitor_choice wanted, bool with_hints) {
  const bool automatic = wanted == monitor_choice::automatic;
  invalidation::monitor_set::members members;
  std::string names = contains_any(wanted, monitor_choice::manual) ? "manual" : "";
  std::string problems = contains_any(wanted, monitor_choice::none) ? "switched off" : "";
  if (names_unknown(wanted)) add(problems, "; ", "unknown bits in monitor_choice");
  for (const kind& one : all_kinds()) {
    if (automatic ? !one.by_default : !contains_any(wanted, one.choice)) continue;
    auto found = find(one);
    if (found.monitor == nullptr) {
      add(problems, "; ", one.name + (": " + found.why_not));
    } else {
      members.push_back(std::move(found.monitor));
      add(names, "+", one.name);
    }
  }
  if (names == "hooks" && (automatic || problems.empty())) complete_hooks(automatic, members, names, problems);
  const bool keeps = automatic ? !members.empty() : problems.empty();
  if (!keeps) return {false, nullptr, "none (" + problems + ")", nullptr, false};
  auto text = problems.empty() ? names : names + " (" + problems + ")";
  if (members.empty()) return {true, nullptr, std::move(text), nullptr, false};
  // Without hooks, another thread may get and acquire the address before userfaultfd's event is read.
  const bool strict = automatic && names == "userfaultfd";
  if (strict) text += ", strict";
  auto hints = with_hints ? hint_allocator() : nullptr;
  if (with_hints) text += hints != nullptr ? ", allocator hints" : ", no allocator hints: no effect here";
  return {true, std::make_shared<const invalidation::monitor_set>(std::move(members)), std::move(text),
          std::move(hints), strict};
}

}  // namespace pinfold::monitors
