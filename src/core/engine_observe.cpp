// SPDX-License-Identifier: BSD-3-Clause
// What the engine writes on the statistics page (docs/observation.md).
#include "core/engine.hpp"
#include "core/ticks.hpp"

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

template <class T>
const error* failure_of(const result<T>& outcome) noexcept {
  return outcome ? nullptr : &outcome.error();
}

}  // namespace

void engine::note_open(core::open_watch::time_point start, const range& where, const result<opened>& made) noexcept {
  core::open_watch::add_since(start);
  if (page_) page_->opened(where, std::chrono::steady_clock::now() - start, failure_of(made));
}

void engine::note_close(core::open_watch::time_point start, const range& where, const result<void>& closed) noexcept {
  page_->closed(where, std::chrono::steady_clock::now() - start, failure_of(closed));
}

// One call of the driver opened them all: each took its part of the time.
void engine::note_group(std::span<const open_request> asked, std::span<const result<opened>> made,
                        core::open_watch::time_point start) noexcept {
  const auto each = (std::chrono::steady_clock::now() - start) / static_cast<std::int64_t>(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    page_->opened(asked[i].extent, each, failure_of(made[i]));
    if (made[i]) page_->missed(asked[i].extent.size(), each);
  }
}

void engine::note_eviction(const entry& victim) noexcept {
  const auto age = core::since(victim.opened_at, core::ticks());
  page_->evicted(age, victim.hits());
  page_->add_event(event_id::evicted, {victim.covered(), static_cast<std::uint64_t>(age.count())});
}

// One event for all that one batch marked: its range reaches from the first to the last of them.
void engine::note_invalidated(const invalidated_entries& marked) noexcept {
  if (marked.all().empty()) return;
  range where = marked.all().front()->covered();
  for (const entry* one : marked.all())
    where = {std::min(where.begin, one->covered().begin), std::max(where.end, one->covered().end)};
  page_->add_event(event_id::invalidated, {where, marked.all().size()});
}

void engine::note_wait(shard& in, std::chrono::nanoseconds spent) noexcept {
  in.counts.add(counter::waited_ns, static_cast<std::uint64_t>(spent.count()));
  if (page_) page_->waited(spent);
}

void engine::note(const event& what) noexcept {
  const auto id = id_of(what.kind);
  if (!id) return;
  const auto native = what.cause != nullptr ? what.cause->native : 0;
  page_->add_event(*id, {what.where, what.leases, native});
  if (what.kind == event_kind::not_kept && what.cause != nullptr)
    page_->failed(observation::driver_call::monitor, what.where, *what.cause);
}

}  // namespace pinfold::detail
