// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The layout of a statistics page: a file in shared memory in which a process publishes what its caches do. Written by
/// the library, read by `observation/reader.hpp` and by programs in other languages; `docs/operate/observation.md`
/// describes it byte by byte.
///
/// A page of version 1 keeps these structures. Later releases append counters and fields at the ends of arrays and
/// structures, within the sizes that the header states, and a reader ignores what it does not know.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pinfold::observation {

/// The first bytes of each page.
inline constexpr std::array<char, 8> page_magic{'p', 'i', 'n', 's', 't', 'a', 't', '1'};
/// The layout's version; a reader refuses pages of a later one.
inline constexpr std::uint32_t page_version = 1;

// How many of each a page of this release has.
inline constexpr std::size_t most_caches = 64;        ///< caches of one process that are published at one time
inline constexpr std::size_t most_counters = 64;      ///< 8-byte values of a cache; the rest are 0
inline constexpr std::size_t most_events = 1024;      ///< the ring of the last events
inline constexpr std::size_t most_stacks = 64;        ///< the ring of call stacks
inline constexpr std::size_t deepest_stack = 20;      ///< frames of one call stack
inline constexpr std::size_t most_errors = 8;         ///< the last failures of a cache
inline constexpr std::size_t most_slow_calls = 4;     ///< the slowest driver calls of each kind
inline constexpr std::size_t size_classes = 7;        ///< of registrations, by bytes
inline constexpr std::size_t histogram_buckets = 40;  ///< of a distribution

/// Returns the class of a size: up to 4 KiB, 64 KiB, 1 MiB, 16 MiB, 256 MiB, 4 GiB, and above.
[[nodiscard]] constexpr std::size_t size_class_of(std::uint64_t bytes) noexcept {
  std::size_t found = 0;
  for (std::uint64_t limit = 4096; found + 1 < size_classes && bytes > limit; limit <<= 4U) ++found;
  return found;
}

/// Returns the largest size of a class, in bytes; 0 for the last, which has no limit.
[[nodiscard]] constexpr std::uint64_t largest_of_class(std::size_t which) noexcept {
  return which + 1 < size_classes ? std::uint64_t{4096} << (4 * which) : 0;
}

/// A distribution by powers of two. Bucket 0 counts values below 128, bucket b those from 2^(b+6) up to, and not
/// including, 2^(b+7); the last has no upper limit. Values are nanoseconds; counts of events are kept times 128, so
/// that bucket 0 counts zeros, bucket 1 ones, bucket 2 twos and threes.
struct histogram {
  std::array<std::uint64_t, histogram_buckets> counts;  ///< values of each bucket
  std::uint64_t sum;                                    ///< of all values
  std::uint64_t largest;                                ///< value
};

/// Returns the bucket of a value.
[[nodiscard]] constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
  const auto bits = static_cast<std::size_t>(std::bit_width(value));
  if (bits <= 7) return 0;
  return bits - 7 < histogram_buckets ? bits - 7 : histogram_buckets - 1;
}

/// Returns the limit that the values of a bucket are below; 0 for the last, which has none.
[[nodiscard]] constexpr std::uint64_t limit_of_bucket(std::size_t which) noexcept {
  return which + 1 < histogram_buckets ? std::uint64_t{1} << (which + 7) : 0;
}

/// What happened to a driver call, or to memory.
enum class event_id : std::uint32_t {
  none = 0,
  gone = 1,                ///< memory of the process went away, or is about to: a monitor, or the program, reported it
  invalidated = 2,         ///< registrations turned stale: `value` says how many, if more than one
  replaced = 3,            ///< a token differed: a stale import was not handed out
  evicted = 4,             ///< an idle registration is closed to make room: `value` is its age in ns
  conflict = 5,            ///< an idle registration is closed because the driver refused an overlapping open
  leased_memory_gone = 6,  ///< memory went away under a lease: `value` is the number of leases
  open_failed = 7,         ///< the driver refused an open: `native` is its code
  close_failed = 8,        ///< the driver refused a close: the registration is in quarantine
  not_kept = 9,            ///< registered for one lease only: a monitor cannot watch the memory
  monitor_changed = 10,    ///< a monitor failed, or works again
  audit_failed = 11,       ///< the pages behind a registration are not the registered ones
  waits_for_node = 12,     ///< a request waits for room in the node's budget
  refused_by_node = 13,    ///< a request got no room in the node's budget
  slow_call = 14,          ///< a driver call took more than 100 ms: `value` is its duration in ns
  leases_outlive = 15,     ///< the cache ended with leases out: `value` is their number
  requested = 16,          ///< an acquire succeeded, of a cache with `trace_requests`
  request_failed = 17,     ///< an acquire returned an error without a call of the driver
};

/// The source of a `gone` event.
enum class gone_source : std::uint32_t { program = 0, hooks = 1, userfaultfd = 2, bpf = 3 };

/// One event of the ring. It is whole if `mark` is its number plus 1 before and after the rest is read, and `check` is
/// `check_of` the rest.
struct event_record {
  std::uint64_t mark;   ///< the event's number plus 1
  std::uint64_t time;   ///< CLOCK_MONOTONIC, in ns
  std::uint64_t begin;  ///< the memory
  std::uint64_t end;    ///< the same
  std::uint64_t value;  ///< see `event_id`
  std::uint32_t kind;   ///< an `event_id`
  std::uint32_t cache;  ///< the cache's number in the process, from 1 on; 0: not of one cache
  std::int32_t thread;  ///< kernel id of the thread that caused it; 0: unknown
  std::int32_t native;  ///< the driver's code; for `gone`, the `gone_source`
  std::uint32_t stack;  ///< number of the call stack plus 1; 0: none was taken
  std::uint32_t check;  ///< `check_of` the other words
};
static_assert(sizeof(event_record) == 64);

/// Returns the check of an event's words.
[[nodiscard]] constexpr std::uint32_t check_of(const event_record& one) noexcept {
  std::uint64_t sum = one.mark;
  for (const std::uint64_t word :
       {one.time, one.begin, one.end, one.value, std::uint64_t{one.kind} << 32U | one.cache,
        std::uint64_t{static_cast<std::uint32_t>(one.thread)} << 32U | static_cast<std::uint32_t>(one.native),
        std::uint64_t{one.stack}})
    sum = (std::rotl(sum, 23) ^ word) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::uint32_t>(sum >> 32U);
}

/// A call stack of the thread that reported `gone`, innermost frame first. Whole under the same rule as an event.
struct stack_record {
  std::uint64_t mark;                               ///< the call stack's number plus 1
  std::uint64_t depth;                              ///< how many frames
  std::array<std::uint64_t, deepest_stack> frames;  ///< return addresses
};

/// The call that failed: of the driver, of a monitor, or an acquire that called no driver.
enum class driver_call : std::uint32_t { open = 0, close = 1, monitor = 2, acquire = 3 };

/// A failure of one of these calls. Whole under the same rule as an event, without `check`.
struct error_record {
  std::uint64_t mark;            ///< the failure's number in the cache plus 1
  std::uint64_t time;            ///< CLOCK_MONOTONIC, in ns
  std::uint64_t begin;           ///< the memory
  std::uint64_t end;             ///< the same
  std::uint32_t call;            ///< a `driver_call`
  std::uint32_t code;            ///< an `errc`
  std::uint32_t native_kind;     ///< a `native_kind`
  std::int32_t native;           ///< the driver's own code
  std::array<char, 96> message;  ///< ends with a 0 byte
};

/// A driver call that took long. Whole if `duration` is the same before and after.
struct slow_call {
  std::uint64_t duration;  ///< in ns; 0: unused
  std::uint64_t time;      ///< of its end: CLOCK_MONOTONIC, in ns
  std::uint64_t begin;     ///< the memory
  std::uint64_t end;       ///< the same
};

/// The state of a slot for a cache.
enum class slot_state : std::uint32_t { unused = 0, running = 1, ended = 2 };

/// One cache. `sequence` is odd while the slot is given to another cache; the names and limits are constant while it is
/// even and the same. Counters and histograms change at any time, each word by itself.
struct cache_slot {
  std::uint32_t sequence;                                ///< odd while the slot is given to another cache
  std::uint32_t state;                                   ///< a `slot_state`
  std::uint32_t number;                                  ///< of the cache in its process, from 1 on
  std::uint32_t shards;                                  ///< parts of the cache with a mutex of their own
  std::uint64_t max_bytes;                               ///< the budget; 2^64 - 1: unlimited
  std::uint64_t max_count;                               ///< the same
  std::uint64_t made_at;                                 ///< CLOCK_MONOTONIC, in ns
  std::uint64_t driver_serial;                           ///< 1: one thread at a time calls the driver
  std::array<char, 64> name;                             ///< texts end with a 0 byte, and are cut where they are longer
  std::array<char, 32> kind;                             ///< of the registrar or importer
  std::array<char, 256> monitors;                        ///< as `cache::monitors` says it
  std::array<std::uint64_t, most_counters> counters;     ///< in the order of `counters` (observation/counters.hpp)
  std::array<histogram, size_classes> misses;            ///< whole duration of the request
  std::array<histogram, size_classes> opens;             ///< the driver's share, failed calls included
  std::array<histogram, size_classes> closes;            ///< the same
  histogram age_at_eviction;                             ///< since the open
  histogram hits_of_evicted;                             ///< times 128; sampled as in `dump()`
  histogram waits;                                       ///< of requests, for other threads or for room
  std::uint64_t errors_written;                          ///< the next failure's number
  std::array<error_record, most_errors> errors;          ///< the ring of the last failures
  std::array<slow_call, most_slow_calls> slowest_opens;  ///< in no order
  std::array<slow_call, most_slow_calls> slowest_closes;  ///< in no order
  histogram idle_at_eviction;                             ///< since the last request, at least
};
inline constexpr std::size_t cache_slot_bytes = 12288;  ///< what a slot occupies; the rest is 0
static_assert(sizeof(cache_slot) <= cache_slot_bytes);

/// The state of a page's process, as the process itself wrote it.
enum class page_state : std::uint32_t { running = 1, ended = 2 };

/// The first bytes of the page.
struct page_header {
  std::array<char, 8> magic;       ///< `page_magic`
  std::uint32_t version;           ///< `page_version`
  std::uint32_t header_bytes;      ///< of this structure in the writer's release
  std::uint64_t page_bytes;        ///< of the whole page
  std::uint32_t caches_from;       ///< offsets in the page, in bytes
  std::uint32_t cache_bytes;       ///< of one slot
  std::uint32_t caches;            ///< how many slots
  std::uint32_t events_from;       ///< offset of the events
  std::uint32_t event_bytes;       ///< of one event
  std::uint32_t events;            ///< how many the ring has
  std::uint32_t stacks_from;       ///< offset of the call stacks
  std::uint32_t stack_bytes;       ///< of one call stack
  std::uint32_t stacks;            ///< how many the ring has
  std::uint32_t state;             ///< a `page_state`
  std::int32_t pid;                ///< in the process's own PID namespace
  std::uint32_t user;              ///< effective user id
  std::uint64_t start_time;        ///< of the process: field 22 of /proc/PID/stat
  std::uint64_t pid_namespace;     ///< inode of /proc/self/ns/pid
  std::uint64_t made_at;           ///< CLOCK_MONOTONIC, in ns
  std::uint64_t made_at_realtime;  ///< CLOCK_REALTIME, in ns
  std::uint64_t published_at;      ///< when the counters were last written: CLOCK_MONOTONIC, in ns
  std::uint64_t publications;      ///< how often
  std::uint64_t period;            ///< between two of them, in ns
  std::uint64_t memlock_limit;     ///< RLIMIT_MEMLOCK of the process, in bytes; 2^64 - 1: unlimited
  std::uint64_t caches_made;       ///< so far, with those that found no slot
  std::uint64_t caches_unlisted;   ///< caches that run and found no slot
  std::uint64_t events_written;    ///< the next event's number
  std::uint64_t stacks_written;    ///< the next call stack's number
  std::uint64_t stacks_until;      ///< call stacks are taken until this time: written by a reader
  std::uint64_t ranges_gone;       ///< events that the process's monitors put onto its event log
  std::array<char, 64> command;    ///< the program's name
  std::array<char, 32> library;    ///< the version of pinfold
  std::uint64_t locked;            ///< 1: the process has the file's lock (flock(2)) for as long as it runs
};
inline constexpr std::size_t header_bytes = 4096;  ///< what the header occupies; the rest is 0
static_assert(sizeof(page_header) <= header_bytes);

// Where a page of this release has its parts.
inline constexpr std::size_t events_from = header_bytes;  ///< offset of the events
/// Offset of the call stacks.
inline constexpr std::size_t stacks_from = events_from + most_events * sizeof(event_record);
/// Offset of the caches' slots.
inline constexpr std::size_t caches_from =
    (stacks_from + most_stacks * sizeof(stack_record) + header_bytes - 1) / header_bytes * header_bytes;
/// Size of the whole page.
inline constexpr std::size_t page_bytes = caches_from + most_caches * cache_slot_bytes;

}  // namespace pinfold::observation
