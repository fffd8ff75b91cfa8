// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/observation/counters.hpp>
#include <pinfold/observation/reader.hpp>

#include "observation/clock.hpp"
#include "observation/page_source.hpp"
#include "observation/text.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <optional>

namespace pinfold::observation {

namespace {

// A time in the future counts as now: the page may contain any value.
std::chrono::nanoseconds since(std::uint64_t then, std::uint64_t now) noexcept {
  return std::chrono::nanoseconds(then < now ? static_cast<std::int64_t>(now - then) : 0);
}

process_state state_of(const page_source& from, const page_header& of,
                       std::chrono::nanoseconds since_published) noexcept {
  const auto life = from.life_of_process(of);
  if (life == process_life::ended) return process_state::ended;
  const auto late =
      std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(of.period, std::uint64_t{1} << 40U))) * 5;
  if (of.period == 0 || since_published <= late) return process_state::running;
  return life == process_life::runs ? process_state::stopped : process_state::unknown;
}

std::vector<error_record> errors_of(const cache_slot& from) {
  std::vector<error_record> found;
  for (auto one : from.errors) {
    if (one.mark == 0 || one.call > static_cast<std::uint32_t>(driver_call::acquire) ||
        one.code > static_cast<std::uint32_t>(errc::closed) ||
        one.native_kind > static_cast<std::uint32_t>(native_kind::libfabric))
      continue;
    put(one.message, printable(one.message));
    found.push_back(one);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.mark < b.mark; });
  return found;
}

std::vector<slow_call> slowest(const std::array<slow_call, most_slow_calls>& from) {
  std::vector<slow_call> found;
  for (const auto& one : from)
    if (one.duration != 0) found.push_back(one);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.duration > b.duration; });
  return found;
}

cache_snapshot cache_of(const cache_slot& from, std::uint64_t now) {
  cache_snapshot made;
  made.number = from.number;
  made.ended = from.state == static_cast<std::uint32_t>(slot_state::ended);
  made.name = printable(from.name);
  made.kind = printable(from.kind);
  made.monitors = printable(from.monitors);
  made.shards = from.shards;
  made.max_bytes = from.max_bytes;
  made.max_count = from.max_count;
  made.age = since(from.made_at, now);
  made.counters = statistics_of(from.counters);
  made.misses = from.misses;
  made.opens = from.opens;
  made.closes = from.closes;
  made.age_at_eviction = from.age_at_eviction;
  made.idle_at_eviction = from.idle_at_eviction;
  made.hits_of_evicted = from.hits_of_evicted;
  made.waits = from.waits;
  made.errors_written = from.errors_written;
  made.errors = errors_of(from);
  made.slowest_opens = slowest(from.slowest_opens);
  made.slowest_closes = slowest(from.slowest_closes);
  return made;
}

// Reads a slot, unless it was given to another cache meanwhile. Returns nothing if the slot is unused.
result<std::optional<cache_snapshot>> read_slot(const page_source& from, std::uint64_t offset, std::uint64_t now) {
  struct {
    std::uint32_t sequence;
    std::uint32_t state;
  } first{}, after{};
  if (auto got = from.read(offset, first); !got) return tl::unexpected(got.error());
  const auto used = [](std::uint32_t state) {
    return state == static_cast<std::uint32_t>(slot_state::running) ||
           state == static_cast<std::uint32_t>(slot_state::ended);
  };
  if (!used(first.state)) return std::optional<cache_snapshot>{};
  for (int tries = 0; tries < 4; ++tries) {
    cache_slot found{};
    if (auto got = from.read(offset, found); !got) return tl::unexpected(got.error());
    if (auto got = from.read(offset, after); !got) return tl::unexpected(got.error());
    if (found.sequence % 2 == 0 && found.sequence == after.sequence && used(found.state))
      return std::optional(cache_of(found, now));
  }
  return std::optional<cache_snapshot>{};
}

}  // namespace

result<process_snapshot> read_page(const std::string& path, std::optional<std::uint32_t> owner) {
  const detail::no_cancellation guard;
  const auto from = page_source::open(path, false, owner);
  if (!from) return tl::unexpected(from.error());
  const auto header = from->header();
  if (!header) return tl::unexpected(header.error());
  const auto now = now_ns();
  process_snapshot made;
  made.path = path;
  made.pid = header->pid;
  made.start_time = header->start_time;
  made.user = header->user;
  made.since_published = since(header->published_at, now);
  made.state = state_of(*from, *header, made.since_published);
  made.command = printable(header->command);
  made.library = printable(header->library);
  made.age = since(header->made_at, now);
  made.memlock_limit = header->memlock_limit;
  made.caches_made = header->caches_made;
  made.caches_unlisted = header->caches_unlisted;
  made.ranges_gone = header->ranges_gone;
  made.events_written = header->events_written;
  const auto slots = std::min<std::uint64_t>(header->caches, header->caches_made);
  for (std::uint64_t i = 0; i < slots; ++i) {
    auto slot = read_slot(*from, header->caches_from + i * header->cache_bytes, now);
    if (!slot) return tl::unexpected(slot.error());
    if (auto& cache = *slot; cache) made.caches.push_back(*std::move(cache));
  }
  std::sort(made.caches.begin(), made.caches.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  return made;
}

const char* name_of(event_id kind) noexcept {
  switch (kind) {
    case event_id::none: return "none";
    case event_id::gone: return "gone";
    case event_id::invalidated: return "invalidated";
    case event_id::replaced: return "replaced";
    case event_id::evicted: return "evicted";
    case event_id::conflict: return "conflict";
    case event_id::leased_memory_gone: return "leased_memory_gone";
    case event_id::open_failed: return "open_failed";
    case event_id::close_failed: return "close_failed";
    case event_id::not_kept: return "not_kept";
    case event_id::monitor_changed: return "monitor_changed";
    case event_id::audit_failed: return "audit_failed";
    case event_id::waits_for_node: return "waits_for_node";
    case event_id::refused_by_node: return "refused_by_node";
    case event_id::slow_call: return "slow_call";
    case event_id::leases_outlive: return "leases_outlive";
    case event_id::requested: return "requested";
    case event_id::request_failed: return "request_failed";
  }
  return "?";
}

}  // namespace pinfold::observation
