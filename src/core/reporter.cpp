// SPDX-License-Identifier: BSD-3-Clause
#include "core/reporter.hpp"

#include "core/ticks.hpp"
#include "index/record_page.hpp"

#include <algorithm>
#include <optional>

namespace pinfold::core {

namespace {

using observation::event_id;

// Returns nothing for the event of a failed driver call: the call writes that one to the page itself, with its
// duration.
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

event reporter::about(const index::entry& one, event_kind kind, severity level) noexcept {
  event what{kind, level};
  what.peer = one.peer();
  what.where = one.covered();
  what.leases = index::pins_of(one);
  what.owner = one.owner();
  return what;
}

void reporter::tell(event what) noexcept {
  if (silent_.load(std::memory_order_relaxed)) return;
  if (is_observed()) note(what);
  if (!has_sink()) return;
  what.cache = options_.name.c_str();
  try {
    options_.sink(what);
  } catch (...) {  // an exception of the sink must not reach a destructor; it is counted
    note_sink_failure();
  }
}

void reporter::tell(const leased_notices& notices) noexcept {
  for (const auto& one : notices.all()) {
    event what{event_kind::invalidated_while_leased, severity::warning};
    what.peer = one.peer;
    what.where = one.where;
    what.leases = one.leases;
    what.owner = one.owner;
    tell(what);
  }
}

void reporter::tell_failed_close(event failed, const error& why) noexcept {
  failed.cause = &why;
  tell(failed);
}

void reporter::note_request(time_point start, std::chrono::nanoseconds opened_for, const range& wanted,
                            const result<detail::grant>& granted) noexcept {
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  PINFOLD_PROBE(miss, name(), wanted.begin, wanted.size(), took.count(), opened_for.count(), code_of(granted));
  if (!page_) return;
  if (granted) return page_->missed(wanted.size(), took);
  if (opened_for.count() == 0) page_->acquire_failed(wanted, granted.error());  // else the failed open is on the page
}

void reporter::note_open(time_point start, const range& where, const result<detail::opened>& made) noexcept {
  open_watch::add_since(start);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  PINFOLD_PROBE(open, name(), where.begin, where.size(), took.count(), code_of(made), native_of(made));
  if (page_) page_->opened(where, took, failure_of(made));
}

void reporter::note_close(time_point start, const range& where, const result<void>& closed) noexcept {
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  PINFOLD_PROBE(close, name(), where.begin, where.size(), took.count(), code_of(closed), native_of(closed));
  if (page_) page_->closed(where, took, failure_of(closed));
}

// Each open took its part of the time.
void reporter::note_group(std::span<const detail::open_request> asked, std::span<const result<detail::opened>> made,
                          time_point start) noexcept {
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

void reporter::note_eviction(const index::entry& victim) noexcept {
  const auto now = ticks();
  const auto age = since(victim.opened_at, now);
  const auto& where = victim.covered();
  PINFOLD_PROBE(evict, name(), where.begin, where.size(), age.count());
  if (!page_) return;
  page_->evicted(age, victim.hits());
  // An older time is that of an earlier entry with this memory.
  if (const auto* const used_at = victim.used_at()) page_->evicted_idle(std::min(age, since(*used_at, now)));
  page_->add_event(event_id::evicted, {where, static_cast<std::uint64_t>(age.count())});
}

// Writes one event for all entries of a batch: its range reaches from the first to the last of them.
void reporter::note_invalidated(const invalidated_entries& marked) noexcept {
  if (marked.all().empty()) return;
  range where = marked.all().front()->covered();
  for (const index::entry* one : marked.all())
    where = {std::min(where.begin, one->covered().begin), std::max(where.end, one->covered().end)};
  PINFOLD_PROBE(invalidate, name(), where.begin, where.size(), marked.all().size());
  if (page_) page_->add_event(event_id::invalidated, {where, marked.all().size()});
}

void reporter::note_wait(guarded_counters& counts, std::chrono::nanoseconds spent) noexcept {
  counts.add(counter::waited_ns, static_cast<std::uint64_t>(spent.count()));
  if (page_) page_->waited(spent);
}

void reporter::note(const event& what) noexcept {
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

}  // namespace pinfold::core
