// SPDX-License-Identifier: BSD-3-Clause
// What the engine writes on the statistics page (docs/operate/observation.md), and tells what is attached to its probes
// (docs/operate/probes.md).
#include "core/engine.hpp"
#include "core/ticks.hpp"
#include "os/probes.hpp"

#include <algorithm>
#include <optional>

namespace pinfold::detail {

namespace {

using observation::event_id;

// Events of calls that failed are written with the call: the sink is told of them without their duration.
std::optional<event_id> id_of(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::replaced: return event_id::replaced;
    case event_kind::conflict: return event_id::conflict;
    case event_kind::invalidated_while_leased: return event_id::leased_memory_gone;
    case event_kind::leases_outlive_cache: return event_id::leases_outlive;
    case event_kind::audit_failed: return event_id::audit_failed;
    case event_kind::requested: return event_id::requested;
    case event_kind::not_kept: return event_id::not_kept;
    case event_kind::monitor_degraded: return event_id::monitor_changed;
    case event_kind::waits_for_node_budget: return event_id::waits_for_node;
    case event_kind::refused_by_node_budget: return event_id::refused_by_node;
    case event_kind::evicted:  // with its age, in `note_eviction`
    case event_kind::close_failed:
    case event_kind::statistics:
    case event_kind::closes_outlive_cache: return std::nullopt;
  }
  return std::nullopt;
}

// 0 for success, and for a failure without a code of the driver's own.
template <class T>
std::int32_t native_of(const result<T>& outcome) noexcept {
  return outcome ? 0 : outcome.error().native;
}

// 0 for success, else the code that C has for the error.
template <class T>
int code_of(const result<T>& outcome) noexcept {
  return outcome ? 0 : -1 - static_cast<int>(outcome.error().code);
}

template <class T>
const error* failure_of(const result<T>& outcome) noexcept {
  return outcome ? nullptr : &outcome.error();
}

}  // namespace

// A request that opened a registration, or failed.
void engine::note_request(core::open_watch::time_point start, std::chrono::nanoseconds opened_for, const range& wanted,
                          const result<grant>& granted) noexcept {
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  PINFOLD_PROBE(miss, name(), wanted.begin, wanted.size(), took.count(), opened_for.count(), code_of(granted));
  if (!page_) return;
  if (granted) return page_->missed(wanted.size(), took);
  if (opened_for.count() == 0) page_->acquire_failed(wanted, granted.error());  // else the failed open is on the page
}

void engine::note_open(core::open_watch::time_point start, const range& where, const result<opened>& made) noexcept {
  core::open_watch::add_since(start);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  PINFOLD_PROBE(open, name(), where.begin, where.size(), took.count(), code_of(made), native_of(made));
  if (page_) page_->opened(where, took, failure_of(made));
}

void engine::note_close(core::open_watch::time_point start, const range& where, const result<void>& closed) noexcept {
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  PINFOLD_PROBE(close, name(), where.begin, where.size(), took.count(), code_of(closed), native_of(closed));
  if (page_) page_->closed(where, took, failure_of(closed));
}

// One call of the driver opened them all: each took its part of the time.
void engine::note_group(std::span<const open_request> asked, std::span<const result<opened>> made,
                        core::open_watch::time_point start) noexcept {
  const auto each = (std::chrono::steady_clock::now() - start) / static_cast<std::int64_t>(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& where = asked[i].extent;
    PINFOLD_PROBE(open, name(), where.begin, where.size(), each.count(), code_of(made[i]), native_of(made[i]));
    if (made[i]) PINFOLD_PROBE(miss, name(), where.begin, where.size(), each.count(), each.count(), 0);
    if (!page_) continue;
    page_->opened(where, each, failure_of(made[i]));
    if (made[i]) page_->missed(where.size(), each);
  }
}

void engine::note_eviction(const entry& victim) noexcept {
  const auto now = core::ticks();
  const auto age = core::since(victim.opened_at, now);
  const auto& where = victim.covered();
  PINFOLD_PROBE(evict, name(), where.begin, where.size(), age.count());
  if (!page_) return;
  page_->evicted(age, victim.hits());
  // An older time is that of an entry that had the memory before.
  if (const auto* const used_at = victim.used_at()) page_->evicted_idle(std::min(age, core::since(*used_at, now)));
  page_->add_event(event_id::evicted, {where, static_cast<std::uint64_t>(age.count())});
}

// One event for all that one batch marked: its range reaches from the first to the last of them.
void engine::note_invalidated(const invalidated_entries& marked) noexcept {
  if (marked.all().empty()) return;
  range where = marked.all().front()->covered();
  for (const entry* one : marked.all())
    where = {std::min(where.begin, one->covered().begin), std::max(where.end, one->covered().end)};
  PINFOLD_PROBE(invalidate, name(), where.begin, where.size(), marked.all().size());
  if (page_) page_->add_event(event_id::invalidated, {where, marked.all().size()});
}

void engine::note_wait(shard& in, std::chrono::nanoseconds spent) noexcept {
  in.counts.add(counter::waited_ns, static_cast<std::uint64_t>(spent.count()));
  if (page_) page_->waited(spent);
}

void engine::note(const event& what) noexcept {
  const auto native = what.cause != nullptr ? what.cause->native : 0;
  if (what.kind == event_kind::replaced) PINFOLD_PROBE(stale, name(), what.where.begin, what.where.size());
  if (what.kind == event_kind::close_failed)
    PINFOLD_PROBE(quarantine, name(), what.where.begin, what.where.size(), native);
  if (what.kind == event_kind::monitor_degraded) PINFOLD_PROBE(monitor, name(), what.text);
  if (what.kind == event_kind::requested && what.cause != nullptr) return;  // `note_request` writes the failure
  const auto id = id_of(what.kind);
  if (!id || !page_) return;
  if (what.kind == event_kind::not_kept && what.cause != nullptr)
    page_->failed(observation::driver_call::monitor, what.where, *what.cause);  // a reader of the event looks for it
  page_->add_event(*id, {what.where, what.leases, native});
}

}  // namespace pinfold::detail
