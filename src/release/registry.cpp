// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/release/registry.hpp>

#include "os/check.hpp"
#include "os/condition.hpp"
#include "os/deadline.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace pinfold {

namespace {

constexpr auto no_memory = "no memory for the exporter's own records";
constexpr auto stale = "the memory is being retired, or freed";

struct holder {
  std::int32_t pid = 0;
  bool asked = false;
  release_state state = release_state::silent;
};

struct memory {
  std::uint64_t retirement = 0;  ///< 0: not retired
  std::uint32_t milliseconds = 0;
  std::size_t let_go = 0;
  std::size_t died = 0;
  std::map<std::uint64_t, holder> holders;  ///< by peer
};

using memories = std::map<std::uint64_t, memory>;  ///< by serial

struct peer_state {
  std::uint64_t asked = 0;  ///< the last retirement that it was looked up in
  std::size_t held = 0;     ///< memory of which it is a holder
  bool lost = false;        ///< it cannot answer
};

std::uint32_t milliseconds_of(std::chrono::milliseconds timeout) noexcept {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(timeout.count(), 0, UINT32_MAX));
}

}  // namespace

struct release_registry::state {
  explicit state(std::uint64_t number) noexcept : exporter(number) {}

  // The caller holds the mutex.
  [[nodiscard]] memory* find(std::uint64_t serial) noexcept {
    const auto found = all.find(serial);
    return found == all.end() ? nullptr : &found->second;
  }
  [[nodiscard]] result<retire_report> report(std::uint64_t serial) const;
  result<void> count(std::uint64_t serial, std::uint64_t peer, std::int32_t pid) noexcept;
  /// Calls `act(memory, holder)` for what the importer holds. Importers that hold nothing cost nothing, however many
  /// connect and leave.
  template <class Act>
  void visit_held(std::uint64_t peer, Act act) noexcept;
  /// Removes a holder, which the caller found.
  void remove_holder(memory& from, std::map<std::uint64_t, holder>::iterator one) noexcept {
    --peers.at(one->first).held;
    from.holders.erase(one);
  }
  void note_released(const memory& one) noexcept {
    released = released || (one.retirement != 0 && one.holders.empty());
  }
  [[nodiscard]] bool is_lost(std::uint64_t peer) const noexcept {
    PINFOLD_ASSERT(peers.contains(peer), "every holder is a known importer");
    return peers.find(peer)->second.lost;
  }
  [[nodiscard]] release_message say(std::uint64_t serial, release_kind kind) const noexcept {
    release_message made{.exporter = exporter, .serial = serial};
    made.kind = kind;
    return made;
  }

  /// Waits until no holder is `awaited`.
  [[nodiscard]] result<retire_report> wait(std::uint64_t serial, std::chrono::milliseconds timeout,
                                           bool (*awaited)(const holder&, bool lost));

  const std::uint64_t exporter;
  std::mutex mutex;
  os::condition changed;
  memories all;
  std::map<std::uint64_t, std::uint64_t> retiring;  ///< serials, by retirement
  std::map<std::uint64_t, peer_state> peers;        ///< all that hold memory, and some that did
  std::uint64_t last_retirement = 0;
  bool released = false;  ///< since the last `any_released`
};

template <class Act>
void release_registry::state::visit_held(std::uint64_t peer, Act act) noexcept {
  const auto known = peers.find(peer);
  const std::size_t held = known == peers.end() ? 0 : known->second.held;
  std::size_t seen = 0;
  for (auto next = all.begin(); seen < held; ++next) {
    PINFOLD_ASSERT(next != all.end(), "an importer's count is that of the memory that has it as a holder");
    const auto found = next->second.holders.find(peer);
    if (found == next->second.holders.end()) continue;
    ++seen;
    act(next->second, found);
  }
}

result<retire_report> release_registry::state::report(std::uint64_t serial) const {
  const auto found = all.find(serial);
  if (found == all.end()) return fail(errc::stale_handle, "the registry has no such memory");
  retire_report made;
  made.let_go = found->second.let_go;
  made.died = found->second.died;
  for (const auto& [peer, one] : found->second.holders)
    made.holders.push_back({peer, one.pid, one.state, is_lost(peer)});
  if (made.holders.empty()) made.state = retire_state::freed;
  return made;
}

result<void> release_registry::state::count(std::uint64_t serial, std::uint64_t peer, std::int32_t pid) noexcept try {
  memory* const found = find(serial);
  if (found == nullptr || found->retirement != 0) return fail(errc::stale_handle, stale);
  // No importer is added to memory that is being retired.
  peer_state& known = peers.try_emplace(peer, peer_state{.asked = last_retirement}).first->second;
  if (found->holders.try_emplace(peer, holder{pid}).second) ++known.held;
  known.lost = false;  // it opens memory, so it is there again
  return {};
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

release_registry::release_registry(std::uint64_t exporter) : state_(std::make_unique<state>(exporter)) {}
release_registry::~release_registry() = default;

result<void> release_registry::add(std::uint64_t serial) noexcept try {
  const std::scoped_lock guard(state_->mutex);
  state_->all.try_emplace(serial);
  return {};
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<void> release_registry::lend(std::uint64_t serial, std::uint64_t peer, std::int32_t pid) noexcept {
  const std::scoped_lock guard(state_->mutex);
  return state_->count(serial, peer, pid);
}

result<std::uint64_t> release_registry::begin_retire(std::uint64_t serial, std::chrono::milliseconds timeout) noexcept
    try {
  const std::scoped_lock guard(state_->mutex);
  memory* const found = state_->find(serial);
  if (found == nullptr || found->retirement != 0) return fail(errc::stale_handle, stale);
  state_->retiring.emplace(state_->last_retirement + 1, serial);
  found->retirement = ++state_->last_retirement;
  found->milliseconds = milliseconds_of(timeout);
  state_->note_released(*found);
  return found->retirement;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

std::optional<release_message> release_registry::next_request(std::uint64_t peer) noexcept {
  const std::scoped_lock guard(state_->mutex);
  const auto known = state_->peers.find(peer);
  if (known == state_->peers.end()) return std::nullopt;
  if (known->second.lost) return std::nullopt;
  std::uint64_t& last = known->second.asked;
  for (auto next = state_->retiring.upper_bound(last); next != state_->retiring.end(); ++next) {
    const auto [retirement, serial] = *next;
    last = retirement;
    PINFOLD_ASSERT(state_->find(serial) != nullptr, "what is being retired is in the registry");
    memory& one = *state_->find(serial);
    PINFOLD_ASSERT(one.retirement == retirement, "both maps know one retirement of the memory");
    const auto found = one.holders.find(peer);
    if (found == one.holders.end() || found->second.asked) continue;
    found->second.asked = true;
    release_message made = state_->say(serial, release_kind::request);
    made.retirement = one.retirement;
    made.milliseconds = one.milliseconds;
    return sealed(made);
  }
  return std::nullopt;
}

void release_registry::take_back(std::uint64_t peer, const release_message& request) noexcept {
  const std::scoped_lock guard(state_->mutex);
  memory* const one = state_->find(request.serial);
  if (one == nullptr) return;
  const auto found = one->holders.find(peer);
  if (found == one->holders.end()) return;
  found->second.asked = false;
  PINFOLD_ASSERT(state_->peers.contains(peer) && one->retirement > 0,
                 "an importer that holds memory is asked about retirements");
  std::uint64_t& last = state_->peers.find(peer)->second.asked;
  last = std::min(last, one->retirement - 1);
}

std::optional<release_message> release_registry::receive(std::uint64_t peer, const release_message& message,
                                                         std::int32_t pid) noexcept {
  if (message.exporter != state_->exporter) return std::nullopt;
  const std::scoped_lock guard(state_->mutex);
  if (message.kind == release_kind::opening) {
    const auto counted = state_->count(message.serial, peer, pid);
    release_message made = state_->say(message.serial, counted ? release_kind::admitted : release_kind::refused);
    if (!counted && counted.error() == errc::out_of_resources) made.state = release_state::unknown;
    made.tag = message.tag;
    return sealed(made);
  }
  memory* const one = state_->find(message.serial);
  if (message.kind != release_kind::answer || one == nullptr) return std::nullopt;
  const auto found = one->holders.find(peer);
  if (found == one->holders.end()) return std::nullopt;
  if (message.retirement != 0 && message.retirement != one->retirement) return std::nullopt;
  if (message.state == release_state::leased) {
    found->second.state = release_state::leased;
  } else if (message.state != release_state::silent) {
    state_->remove_holder(*one, found);
    if (one->retirement != 0) ++one->let_go;
    state_->note_released(*one);
  }
  state_->changed->notify_all();
  return std::nullopt;
}

std::size_t release_registry::died(std::uint64_t peer) noexcept {
  std::size_t held = 0;
  const std::scoped_lock guard(state_->mutex);
  state_->visit_held(peer, [&](memory& one, auto found) {
    ++held;
    state_->remove_holder(one, found);
    if (one.retirement != 0) ++one.died;
    state_->note_released(one);
  });
  state_->peers.erase(peer);
  state_->changed->notify_all();
  return held;
}

bool release_registry::lost(std::uint64_t peer) noexcept {
  const std::scoped_lock guard(state_->mutex);
  const auto known = state_->peers.find(peer);
  if (known == state_->peers.end()) return false;
  const bool held = known->second.held != 0;
  if (held && std::exchange(known->second.lost, true)) return true;  // the server says it in each round
  if (!held) state_->peers.erase(known);
  state_->changed->notify_all();
  return held;
}

bool release_registry::any_released() noexcept {
  const std::scoped_lock guard(state_->mutex);
  return std::exchange(state_->released, false);
}

bool release_registry::is_held(std::uint64_t serial) const noexcept {
  const std::scoped_lock guard(state_->mutex);
  const memory* const found = state_->find(serial);
  return found != nullptr && !found->holders.empty();
}

result<retire_report> release_registry::report(std::uint64_t serial) const noexcept try {
  const std::scoped_lock guard(state_->mutex);
  return state_->report(serial);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<retire_report> release_registry::state::wait(std::uint64_t serial, std::chrono::milliseconds timeout,
                                                    bool (*awaited)(const holder&, bool lost)) {
  const detail::no_cancellation whole;
  const auto deadline = os::deadline_in(timeout, std::chrono::days{1});
  std::unique_lock guard(mutex);
  changed->wait_until(guard, deadline, [&] {
    const memory* const one = find(serial);
    return one == nullptr || std::ranges::none_of(one->holders, [&](const auto& each) {
             return awaited(each.second, is_lost(each.first));
           });
  });
  return report(serial);
}

result<retire_report> release_registry::wait(std::uint64_t serial, std::chrono::milliseconds timeout) const noexcept
    try {
  return state_->wait(serial, timeout, [](const holder& /*any*/, bool /*lost*/) { return true; });
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<retire_report> release_registry::wait_for_answers(std::uint64_t serial,
                                                         std::chrono::milliseconds timeout) const noexcept try {
  return state_->wait(serial, timeout,
                      [](const holder& one, bool lost) { return !lost && one.state == release_state::silent; });
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

void release_registry::forget(std::uint64_t serial) noexcept {
  memories::node_type removed;  // its memory is freed after the lock is released
  const std::scoped_lock guard(state_->mutex);
  removed = state_->all.extract(serial);
  if (removed) {
    state_->retiring.erase(removed.mapped().retirement);
    for (const auto& [peer, one] : removed.mapped().holders) --state_->peers.at(peer).held;
  }
  state_->changed->notify_all();
}

}  // namespace pinfold
