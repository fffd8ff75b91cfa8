// SPDX-License-Identifier: BSD-3-Clause
// The monitors of this process: made for the first cache that uses them, destroyed with the last.
#include "monitors/bpf/bpf.hpp"
#include "monitors/hooks/hooks.hpp"
#include "monitors/selection/selection.hpp"
#include "monitors/userfaultfd/userfaultfd.hpp"
#include "os/check.hpp"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace pinfold::monitors {

namespace {

using invalidation::event_log;
using invalidation::registered_filter;
using invalidation::source;

result<std::unique_ptr<invalidation::monitor>> make_bpf_anywhere(event_log& to, registered_filter& watched) {
  bpf_source from;
  const char* const socket = ::secure_getenv("PINFOLD_MONITORD");
  from.named = socket != nullptr;
  if (from.named) from.socket = socket;
  auto made = make_bpf(to, watched, from);
  if (!made) return tl::unexpected(made.error());
  return std::move(*made);
}

constexpr std::array<kind, 3> kinds{{
    {monitor_choice::hooks, source::hooks, "hooks", true, make_hooks, prepare_hooks},
    {monitor_choice::userfaultfd, source::userfaultfd, "userfaultfd", true, make_userfaultfd, nullptr},
    {monitor_choice::bpf, source::bpf, "bpf", false, make_bpf_anywhere, nullptr},
}};

/// The monitors of one process. A child of fork(2) has its own; its parent's stay unchanged.
struct registry {
  struct known {
    std::unique_ptr<invalidation::monitor> monitor;
    std::size_t users = 0;
    std::optional<std::string> verdict;  ///< of the proof; empty if it passed
  };

  std::uint64_t process = 0;
  std::mutex mutex;
  std::array<known, kinds.size()> all;  // guarded by mutex
};

std::atomic<registry*> current{nullptr};

// The registry is never freed: in a child, another thread of the parent may have left it in any state.
registry& registry_here() {
  const auto process = event_log::here().process();
  registry* found = current.load(std::memory_order_seq_cst);
  while (found == nullptr || found->process != process) {
    auto fresh = std::make_unique<registry>();
    fresh->process = process;
    if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_seq_cst)) return *fresh.release();
  }
  return *found;
}

/// One use of a monitor. The last use destroys the monitor with the mutex held, because there is one of each kind at a
/// time: a cache made meanwhile waits for the end, and then gets a new monitor. The thread that the destructor joins
/// takes no lock. In a child of fork(2) this does nothing: a thread that the child does not have may hold the mutex.
class use {
 public:
  use() = default;
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  ~use() {
    const event_log* const here = event_log::if_there();
    if (in_ == nullptr || here == nullptr || here->process() != in_->process) return;
    const std::lock_guard guard(in_->mutex);
    PINFOLD_ASSERT(of_->users > 0, "a use of a monitor is counted");
    if (--of_->users == 0) of_->monitor.reset();
  }

  /// The caller holds the mutex.
  void begin(registry& in, registry::known& of) noexcept {
    PINFOLD_ASSERT(in_ == nullptr && of.monitor != nullptr, "an object counts one use, of a monitor that is there");
    in_ = &in;
    of_ = &of;
    ++of.users;
  }

 private:
  registry* in_ = nullptr;
  registry::known* of_ = nullptr;
};

// Runs the event, up to three times if the monitor misses it: another thread may have taken the address. After a miss
// the event must be seen: an allocator that keeps the second block proves nothing about the first.
bool is_seen(const probe& event, const invalidation::monitor_set& by, sources by_whom) noexcept {
  bool missed = false;
  for (int tries = 0; tries < 3; ++tries) {
    sources seen = 0;
    const auto what = event.run(by, seen);
    if (what == outcome::gone && (seen & by_whom) != 0) return true;
    if (what != outcome::gone && !missed) return true;
    missed = true;
  }
  return false;
}

// Causes every event that the monitor claims to see, and those of this process's allocator, whose behaviour is not
// known before. Returns what the monitor missed, or empty.
std::string prove(const kind& of, invalidation::monitor& made) {
  const invalidation::monitor_set alone({std::shared_ptr<invalidation::monitor>(std::shared_ptr<void>(), &made)});
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

// Returns why there is no usable monitor, or empty. The caller holds the mutex.
std::string make_and_prove(const kind& wanted, registry::known& known) {
  if (known.verdict && !known.verdict->empty()) return *known.verdict;
  std::unique_ptr<invalidation::monitor> fresh;
  if (known.monitor != nullptr && !known.monitor->ensure_works()) return known.monitor->why_not();
  if (known.monitor == nullptr) {
    auto made = wanted.make(event_log::here(), registered_filter::here());
    if (!made) return describe(made.error());
    fresh = std::move(*made);
  }
  if (!known.verdict) known.verdict = prove(wanted, known.monitor != nullptr ? *known.monitor : *fresh);
  if (fresh != nullptr && known.verdict->empty()) known.monitor = std::move(fresh);
  return *known.verdict;
}

}  // namespace

std::span<const kind> all_kinds() noexcept { return kinds; }

proven find(const kind& wanted) {
  if (wanted.prepare != nullptr) wanted.prepare();
  auto used = std::make_shared<use>();  // declared before the guard: its destructor may take the mutex
  registry& here = registry_here();
  const std::lock_guard guard(here.mutex);
  PINFOLD_ASSERT(&wanted >= kinds.data() && &wanted < kinds.data() + kinds.size(), "the kind is one of the list");
  auto& known = here.all[static_cast<std::size_t>(&wanted - kinds.data())];
  if (auto why_not = make_and_prove(wanted, known); !why_not.empty()) return {nullptr, std::move(why_not)};
  used->begin(here, known);
  auto* const monitor = known.monitor.get();
  return {std::shared_ptr<invalidation::monitor>(std::move(used), monitor), {}};
}

}  // namespace pinfold::monitors
