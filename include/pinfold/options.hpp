// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Options of a cache: what it keeps, how much, how long it waits.
#pragma once

#include <pinfold/events.hpp>
#include <pinfold/limits.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pinfold {

class node_budget;

/// The behaviour of an acquire when the budget is used up and no entry is idle (R14).
enum class when_full : std::uint8_t {
  fail,    ///< return `over_budget` at once
  wait,    ///< wait for room, at most `full_timeout`, then `over_budget`
  bypass,  ///< register for the current leases only, outside the budget; the last release closes the registration
};

/// The thread that closes registrations that are no longer needed (R5). The cache never closes inside an event.
enum class close_policy : std::uint8_t {
  immediate,  ///< on the thread that made them closable, in its release or other call
  deferred,   ///< by the next miss, `progress()`, `flush()`, or the reaper
};

/// What a `cache` registers for a request that overlaps registrations (R62). Registrations that a new one covers in
/// range and access are closed when no lease holds them.
enum class merge_policy : std::uint8_t {
  none,      ///< the requested range
  rights,    ///< if the request lies in registrations that lack access: their ranges too, with the access of all
  overlaps,  ///< also the ranges of all registrations that overlap, with the access of all
};

/// The monitors that tell a `cache` that memory of this process is gone (R32, R33). Import caches need none: they
/// compare tokens. Monitors can be joined with `|`. The cache then keeps a registration only if every one of them has
/// proven itself, works, and watches the memory. With unknown bits the cache keeps nothing.
/// `docs/understand/monitors.md` lists what each monitor sees and what it costs. If `automatic` selects userfaultfd
/// alone, it is `strict`.
enum class monitor_choice : std::uint8_t {
  automatic = 0,    ///< hooks and userfaultfd, those that prove themselves here; if none does, the cache keeps nothing
  manual = 1,       ///< the application calls `cache::invalidate`, or `announce_gone` (monitors/announce.hpp)
  hooks = 2,        ///< patches libc's functions; alone only if no other code unmaps, or with `manual`
  userfaultfd = 4,  ///< the kernel reports each registered range that goes
  bpf = 8,          ///< programs in the kernel; needs privileges, or a helper process that has them
  none = 128,       ///< no monitor: the cache keeps nothing
};
/// Returns the monitors that are in either.
[[nodiscard]] constexpr monitor_choice operator|(monitor_choice a, monitor_choice b) noexcept {
  return static_cast<monitor_choice>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// Returns whether `all` contains the monitor `one`.
[[nodiscard]] constexpr bool contains_any(monitor_choice all, monitor_choice one) noexcept {
  return (static_cast<std::uint8_t>(all) & static_cast<std::uint8_t>(one)) != 0;
}

/// The most shards of a cache.
inline constexpr std::uint32_t most_shards = 64;

/// Options of one cache. The four modes are `retain` × a budget. Without `retain` no registration stays open after its
/// last release. With a budget the open registrations never exceed it, leased ones included.
struct cache_options {
  std::string name = "pinfold";  ///< shown in events and statistics
  bool retain = true;            ///< keep registrations without a lease for reuse (R11)

  // Budget

  std::size_t max_bytes = unlimited;  ///< most bytes registered at any time (R12)
  std::size_t max_count = unlimited;  ///< most registrations open at any time (R12)
  when_full full = when_full::fail;   ///< what an acquire does without room

  /// The account that the cache takes the bytes of its registrations from, beside its own budget; null: none. Other
  /// processes take from it, too (`node_budget.hpp`). A bypass is outside of it as well.
  std::shared_ptr<pinfold::node_budget> node_budget{};

  // Merging, for caches of local memory

  merge_policy merge = merge_policy::none;  ///< what is registered for a request that overlaps registrations. If that
                                            ///< fails, the request is registered alone
  std::size_t merge_limit = std::size_t{1} << 30U;  ///< no registration grows beyond this by merging

  // Staleness, for caches of local memory

  monitor_choice monitor = monitor_choice::automatic;  ///< the monitors that report memory that goes
  bool strict = false;  ///< with userfaultfd: exact even if a thread reuses an address that another thread unmapped
                        ///< with a raw system call. Adds 0.2 to 0.7 us to every hit
  bool allocator_hints = false;  ///< with `retain` and a proven monitor: make `malloc` return less memory to the
                                 ///< system, if the allocator honours that (R34); undone with the last such cache
  bool program_data = false;     ///< keep registrations of text and data of programs and libraries: assumes that no
                                 ///< process truncates those files

  // Closing

  close_policy closes = close_policy::immediate;  ///< the thread that closes
  bool reaper = false;  ///< run a thread that does the deferred closes, deregisters within 100 ms local memory that
                        ///< went away (R60), and closes imports that are idle for `idle_timeout`

  /// For caches of imported memory: the cache closes mappings that no lease used for this long, because no event tells
  /// an importer that the exporter freed a buffer, and a mapping keeps that buffer allocated. The next miss,
  /// `progress()` or the reaper closes them, within twice this time. 0 = never.
  std::chrono::milliseconds idle_timeout{60000};

  /// The cache opens and closes on one thread at a time, for drivers that require it (R63). Two caches over one driver
  /// do not wait for each other.
  bool serial = false;

  /// The parts in which a cache of local memory is divided, by addresses, so that misses and evictions of several
  /// threads go on at the same time: a power of two, at most 64; other numbers are rounded up. 0: eight for each
  /// processor of this process, fewer where the budget has room for few registrations. Caches of imports, and caches
  /// that merge or do not retain, have one.
  std::uint32_t shards = 0;

  // Time-outs

  std::chrono::milliseconds full_timeout{1000};   ///< longest wait for room, with `when_full::wait`
  std::chrono::milliseconds conflict_timeout{0};  ///< longest wait for a conflicting lease to end (R6)
  std::chrono::milliseconds wait_timeout{30000};  ///< longest wait for another thread's open or close
  std::chrono::milliseconds drain_timeout{1000};  ///< longest wait for leases and closes at destruction (R42)

  // Observation and debugging

  event_sink sink{};                ///< receives the events; may be empty
  bool entry_statistics = false;    ///< exact hit counts per entry in `dump()`, else sampled (R45)
  bool statistics_at_exit = false;  ///< send a `statistics` event at destruction (R44), with the monitors

  /// Publish the cache's counters, durations, failures and events on the process's statistics page, for `pinfold top`
  /// and other programs of this user (docs/operate/observation.md). Also with PINFOLD_STATS=on in the environment.
  /// Costs a hit nothing, a miss two readings of the clock; a thread of the process writes the counters ten times a
  /// second.
  bool publish_statistics = false;

  /// For a `cache` whose registrar pins pages: audits one hit in this many; 0 = none. An audit asks the kernel whether
  /// the pages behind the hit are still the registered ones. If they are not, the cache tells the sink, counts the
  /// failure, and does not hand out the registration. Needs CAP_SYS_ADMIN (`cache::monitors` says so when it is
  /// missing). Costs: every hit takes the cache's mutex; an audit takes about 0.3 us, and 5.5 ns for each page of the
  /// registration.
  std::uint32_t audit_one_in = 0;

  /// Send an event to the sink for every acquire (`event_kind::requested`), for recording (`trace_file.hpp`). `find`
  /// sends none. Costs: every hit takes the cache's mutex and calls the sink, and the cache opens the ranges of a batch
  /// one by one.
  bool trace_requests = false;
};

}  // namespace pinfold
