// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/choice.hpp"

#include "monitors/bpf.hpp"
#include "monitors/hints.hpp"
#include "monitors/hooks.hpp"
#include "monitors/userfaultfd.hpp"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace pinfold::monitors {

namespace {

using watch::board;
using watch::source;
using watch::watched_memory;

result<std::unique_ptr<watch::monitor>> make_bpf_anywhere(board& to, watched_memory& watched) {
  bpf_source from;
  if (const char* socket = ::secure_getenv("PINFOLD_MONITORD"); socket != nullptr) from.socket = socket;
  auto made = make_bpf(to, watched, from);
  if (!made) return tl::unexpected(made.error());
  return std::move(*made);
}

constexpr std::array<kind, 3> kinds{{
    {monitor_choice::hooks, source::hooks, "hooks", true, make_hooks, prepare_hooks},
    {monitor_choice::userfaultfd, source::userfaultfd, "userfaultfd", true, make_userfaultfd, nullptr},
    {monitor_choice::bpf, source::bpf, "bpf", false, make_bpf_anywhere, nullptr},
}};

/// The monitors of one process. A child of fork(2) has others; its parent's stay as they were.
struct registry {
  struct known {
    std::weak_ptr<watch::monitor> monitor;
    std::optional<std::string> verdict;  ///< of the proof; empty when it was passed
  };

  std::uint64_t process = 0;
  std::mutex mutex;
  std::array<known, kinds.size()> all;
};

std::atomic<registry*> current{nullptr};

// Never freed: in a child, another thread of the parent may have been at work on it.
registry& registry_here() {
  const auto process = board::here().process();
  registry* found = current.load();
  while (found == nullptr || found->process != process) {
    auto fresh = std::make_unique<registry>();
    fresh->process = process;
    if (current.compare_exchange_strong(found, fresh.get())) return *fresh.release();
  }
  return *found;
}

// Twice again when something was not seen: another thread may have taken the address meanwhile. But then it has to be
// seen: an allocator that keeps the second block proves nothing about the first.
bool is_seen(const probe& event, const watch::monitor_set& by, sources who) noexcept {
  bool missed = false;
  for (int tries = 0; tries < 3; ++tries) {
    sources seen = 0;
    const auto what = event.run(by, seen);
    if (what == outcome::gone && (seen & who) != 0) return true;
    if (what != outcome::gone && !missed) return true;
    missed = true;
  }
  return false;
}

// Does everything that the monitor claims to see, and what this process's allocator does, which nobody knows before.
std::string prove(const kind& of, const std::shared_ptr<watch::monitor>& made) {
  const watch::monitor_set alone({made});
  std::string missed;
  for (const auto list : {system_calls(), allocator_habits()}) {
    for (const probe& event : list) {
      if ((event.claimed_by & only(of.source)) == 0 || is_seen(event, alone, only(of.source))) continue;
      missed += missed.empty() ? "does not see " : ", ";
      missed += event.event;
    }
  }
  return missed;
}

std::string words(const error& why) { return describe(why); }

}  // namespace

std::span<const kind> all_kinds() noexcept { return kinds; }

proven find(const kind& wanted) {
  if (wanted.prepare != nullptr) wanted.prepare();
  registry& here = registry_here();
  const std::lock_guard guard(here.mutex);
  auto& known = here.all[static_cast<std::size_t>(&wanted - kinds.data())];
  auto monitor = known.monitor.lock();
  if (known.verdict && !known.verdict->empty()) return {nullptr, *known.verdict};
  if (monitor == nullptr) {
    auto made = wanted.make(board::here(), watched_memory::here());
    if (!made) return {nullptr, words(made.error())};
    monitor = std::move(*made);
  }
  if (!known.verdict) known.verdict = prove(wanted, monitor);
  if (!known.verdict->empty()) return {nullptr, *known.verdict};
  known.monitor = monitor;
  return {std::move(monitor), {}};
}

chosen choose(monitor_choice wanted, bool with_hints) {
  const bool automatic = wanted == monitor_choice::automatic;
  watch::monitor_set::members members;
  std::string names = includes(wanted, monitor_choice::explicit_) ? "explicit" : "";
  std::string problems = includes(wanted, monitor_choice::none) ? "switched off" : "";
  for (const kind& one : kinds) {
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
