// SPDX-License-Identifier: BSD-3-Clause
#include "c/event.hpp"

#include "c/failure.hpp"

namespace pinfold::c {

namespace {

static_assert(static_cast<int>(event_kind::waits_for_node_budget) == PINFOLD_EVENT_WAITS_FOR_NODE_BUDGET &&
              static_cast<int>(event_kind::refused_by_node_budget) == PINFOLD_EVENT_REFUSED_BY_NODE_BUDGET &&
              static_cast<int>(event_kind::monitor_degraded) == PINFOLD_EVENT_MONITOR_DEGRADED &&
              static_cast<int>(event_kind::not_kept) == PINFOLD_EVENT_NOT_KEPT &&
              static_cast<int>(event_kind::requested) == PINFOLD_EVENT_REQUESTED &&
              static_cast<int>(event_kind::closes_outlive_cache) == PINFOLD_EVENT_CLOSES_OUTLIVE_CACHE &&
              static_cast<int>(event_kind::audit_failed) == PINFOLD_EVENT_AUDIT_FAILED &&
              static_cast<int>(event_kind::statistics) == PINFOLD_EVENT_STATISTICS &&
              static_cast<int>(event_kind::leases_outlive_cache) == PINFOLD_EVENT_LEASES_OUTLIVE_CACHE &&
              static_cast<int>(event_kind::close_failed) == PINFOLD_EVENT_CLOSE_FAILED &&
              static_cast<int>(event_kind::invalidated_while_leased) == PINFOLD_EVENT_INVALIDATED_WHILE_LEASED &&
              static_cast<int>(event_kind::conflict) == PINFOLD_EVENT_CONFLICT &&
              static_cast<int>(event_kind::replaced) == PINFOLD_EVENT_REPLACED &&
              static_cast<int>(event_kind::evicted) == PINFOLD_EVENT_EVICTED);
static_assert(static_cast<int>(severity::debug) == PINFOLD_DEBUG && static_cast<int>(severity::info) == PINFOLD_INFO &&
              static_cast<int>(severity::warning) == PINFOLD_WARNING &&
              static_cast<int>(severity::failure) == PINFOLD_FAILURE);

const char* text_of(event_kind kind) {
  switch (kind) {
    case event_kind::evicted: return "the cache closes an idle entry to make room";
    case event_kind::replaced: return "the exporter reallocated the memory: the entry is stale";
    case event_kind::conflict: return "the cache closes an idle entry that was in the way of an open";
    case event_kind::invalidated_while_leased: return "memory went away under a lease";
    case event_kind::close_failed: return "the driver refused a close; the cache retries it";
    case event_kind::leases_outlive_cache: return "leases are still out after the drain time-out";
    case event_kind::statistics: return "the counters could not be written";
    case event_kind::audit_failed: return "the pages behind an entry are not the registered ones";
    case event_kind::closes_outlive_cache: return "another thread is still in the driver after the drain time-out";
    case event_kind::requested: return "an acquire ended";
    case event_kind::not_kept: return "the memory is registered for one lease only";
    case event_kind::monitor_degraded: return "a monitor failed, or works again";
    case event_kind::waits_for_node_budget: return "a request waits for room in the node's budget";
    case event_kind::refused_by_node_budget: return "a request got no room in the node's budget";
  }
  return "an event";
}

}  // namespace

void send(const event& what, void (*sink)(void* self, const pinfold_event* event), void* self) {
  pinfold_error cause{};
  if (what.cause != nullptr) cause = as_c(*what.cause);
  pinfold_event plain{};
  plain.size = sizeof plain;
  plain.kind = static_cast<int>(what.kind);
  plain.level = static_cast<int>(what.level);
  plain.cache = what.cache;
  plain.peer = what.peer.value;
  plain.base = what.where.begin;
  plain.bytes = what.where.size();
  plain.leases = what.leases;
  plain.cause = what.cause != nullptr ? &cause : nullptr;
  plain.text = *what.text != '\0' ? what.text : text_of(what.kind);
  plain.registered_base = what.registered.begin;
  plain.registered_bytes = what.registered.size();
  plain.opened_for_ns = static_cast<std::uint64_t>(what.opened_for.count());
  plain.hit = what.hit ? 1 : 0;
  plain.owner = what.owner;
  sink(self, &plain);
}

}  // namespace pinfold::c

const char* pinfold_event_name(int kind) {
  if (kind < PINFOLD_EVENT_EVICTED || kind > PINFOLD_EVENT_REFUSED_BY_NODE_BUDGET) return "unknown";
  return name_of(static_cast<pinfold::event_kind>(kind));
}
