// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caches and entries of any process, also of one that hangs, and of core files: read from memory, without help of
/// the process.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/options.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>
#include <pinfold/statistics.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pinfold {

/// One entry of a cache in a process, as it was when its memory was read.
struct dumped_entry {
  peer_id peer{};                            ///< the exporter of imported memory
  range covered{};                           ///< the peer's addresses for imported memory, the process's otherwise
  std::uintptr_t data = 0;                   ///< where `covered.begin` is in the process
  std::uint64_t bytes = 0;                   ///< bytes that the entry counts against the budget
  entry_state state = entry_state::free;     ///< as `docs/understand/protocol.md` names it
  access_flags access = access_flags::none;  ///< access that the registration grants
  std::uint64_t leases = 0;                  ///< leases on it, as in `entry_info`
  std::uint64_t hits = 0;                    ///< sampled, one in 512, unless `entry_statistics`
  std::chrono::nanoseconds age{0};           ///< time since the open, to about 20 ms; 0 while it is being opened. In a
                                             ///< core file, until the last open of that copy of the library
  std::int32_t owner = 0;                    ///< kernel id of the thread that opened it
  bool owner_lives = false;                  ///< whether the process has a thread with that id
  bool bypass = false;                       ///< outside the budget, closed by its last release
  bool persistent = false;                   ///< neither evicted nor flushed
  bool unshared = false;                     ///< for one lease
  bool doomed = false;                       ///< is being opened, and will not be found by requests
  bool in_driver = false;                    ///< the driver is at work on its open
  bool hittable = false;                     ///< hits may find it without the mutex
  bool stale = false;                        ///< the memory was replaced or invalidated after it was registered
  std::uintptr_t record = 0;                 ///< for debuggers: the address of the record that leases refer to
  std::uintptr_t entry = 0;                  ///< for debuggers: the address of the entry
};

/// One cache in a process.
struct dumped_cache {
  std::string name;           ///< `cache_options::name`, at most 63 bytes of it
  std::string registrar;      ///< the name of its registrar or importer
  std::string release;        ///< of the copy of the library, for instance `0.2.0`
  std::uintptr_t engine = 0;  ///< for debuggers: the address of the engine that the cache refers to
  bool imports = false;       ///< whether it is an `import_cache`
  bool ended = false;         ///< the cache was destroyed; leases are out
  /// The process is a child of fork(2), and its parent made the cache: nothing in the child may use it.
  bool of_parent = false;
  /// Whether all entries could be read. If not, the process changed meanwhile, or its memory is damaged.
  bool complete = false;

  bool retain = false;                            ///< `cache_options::retain`
  bool strict = false;                            ///< `cache_options::strict`
  bool reaper = false;                            ///< `cache_options::reaper`
  when_full full = when_full::fail;               ///< `cache_options::full`
  close_policy closes = close_policy::immediate;  ///< `cache_options::closes`
  std::uint64_t max_bytes = unlimited;            ///< `cache_options::max_bytes`
  std::uint64_t max_count = unlimited;            ///< `cache_options::max_count`

  std::uint64_t bytes_now = 0;      ///< bytes that count against the budget
  std::uint64_t entries_now = 0;    ///< entries that count against the budget
  std::uint32_t shards = 0;         ///< parts with a mutex of their own
  std::uint32_t locked_shards = 0;  ///< of those, the ones whose mutex a thread held

  /// The counters, most of them those of `statistics`, with the names that the release gives them.
  std::vector<std::pair<std::string, std::uint64_t>> counters;
  /// Closed registrations that the cache remembers, by the reason that the next miss on them will have: cold,
  /// invalidated, access, extent, evicted.
  std::array<std::uint64_t, 5> remembered{};
  std::vector<dumped_entry> entries;    ///< in no order
  std::vector<std::uintptr_t> revoked;  ///< for debuggers: records that were closed under leases, as the cache ended
};

/// What `dump_process` or `dump_core_file` found.
struct process_dump {
  bool core = false;           ///< this is of a core file
  int process = 0;             ///< its id
  std::string command;         ///< the name of its program, from the kernel, at most 15 bytes
  bool stopped = false;        ///< all of its threads were stopped before and after: nothing changed while it was read
  std::size_t copies = 0;      ///< copies of the library in it
  std::size_t unreadable = 0;  ///< of those, the ones of a release that this one cannot read, or with damaged memory
  std::vector<dumped_cache> caches;  ///< of all readable copies
};

/// Reads the caches of a process. The process does nothing for it and is not stopped, so that entries that change at
/// that moment may be seen in an earlier state, twice, or not at all. It may be stopped, hang with mutexes held, end
/// meanwhile, or be the calling process. Finds shared, static and stripped copies of the library. Needs the right to
/// trace the process (ptrace(2)), or `memory`: a descriptor of its /proc/PID/mem that a process with that right, such
/// as a debugger, has opened. Any thread may call this; it takes milliseconds, and seconds for millions of entries.
///
/// Errors: `not_permitted` with the `errno`, and a message that says what would permit it; `peer_gone` with `ESRCH` if
/// there is no such process; `driver_error` with the `errno` of reading /proc. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<process_dump> dump_process(int process, int memory = -1);

/// Reads the caches of a process from its core file, which the kernel or gdb has written on this or on another machine.
/// No other file is needed. The core file may be cut off or damaged: what cannot be read is counted or marked.
///
/// Errors: `invalid_argument` if it is no core file of a process with words of 64 bits; the `errno` of opening it.
/// Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<process_dump> dump_core_file(const std::string& path);

}  // namespace pinfold
