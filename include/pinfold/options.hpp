// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How a cache behaves: what it keeps, how much, how long it waits.
#pragma once

#include <pinfold/events.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pinfold {

/// What an acquire does when the budget is used up and nothing is idle (R14).
enum class when_full : std::uint8_t {
  fail,    ///< return `over_budget` at once
  wait,    ///< wait for room, at most `full_timeout`, then `over_budget`
  bypass,  ///< register for the leases of the moment only, outside the budget, closed by the last release
};

/// Where registrations that nobody needs any more are closed (R5). Inside an event it is always later.
enum class close_policy : std::uint8_t {
  inline_,   ///< on the thread whose release or call made them closable
  deferred,  ///< by the next miss, `progress()`, `flush()`, or the reaper
};

/// Who tells a `cache` that memory of this process is gone (R32, R33). Import caches need nobody: their tokens tell.
/// Several may be joined with `|`: then every one of them has to prove itself, or nothing is kept; and a registration
/// is kept only when every one of them works and watches its memory. Unknown bits mean that nothing is kept.
/// `docs/monitors.md` says what each of them sees, and what it costs. Where `automatic` is userfaultfd alone, it is
/// `strict`.
enum class monitor_choice : std::uint8_t {
  automatic = 0,    ///< hooks and userfaultfd, those that prove themselves here; nothing is kept if none does
  explicit_ = 1,    ///< the application says so: `cache::invalidate`, or `announce_gone` (monitors/explicit.hpp)
  hooks = 2,        ///< libc's are patched; alone only where no other code unmaps, or with `explicit_`
  userfaultfd = 4,  ///< the kernel tells of each range that was registered
  bpf = 8,          ///< programs in the kernel; needs privileges, or a helper that has them
  none = 128,       ///< nobody: nothing is kept
};
[[nodiscard]] constexpr monitor_choice operator|(monitor_choice a, monitor_choice b) noexcept {
  return static_cast<monitor_choice>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// Whether `all` names the monitor.
[[nodiscard]] constexpr bool includes(monitor_choice all, monitor_choice one) noexcept {
  return (static_cast<std::uint8_t>(all) & static_cast<std::uint8_t>(one)) != 0;
}

/// Options of one cache. The four modes are `retain` × a budget: without `retain` nothing stays open after its last
/// release; with a budget the cache never has more open than that, leases included.
struct cache_options {
  std::string name = "pinfold";  ///< shown in events and statistics

  bool retain = true;         ///< keep registrations without a lease for reuse (R11)
  std::size_t max_bytes = 0;  ///< most bytes registered at any time, 0 = no limit (R12)
  std::size_t max_count = 0;  ///< most registrations open at any time, 0 = no limit (R12)

  /// For caches of imported memory: what no lease used for so long is closed, for nothing tells an importer that the
  /// exporter freed a buffer, and what is mapped stays allocated there. By the next miss or `progress()`, or by the
  /// reaper; within twice this time. 0 = never.
  std::chrono::milliseconds idle_timeout{60000};

  // For caches of local memory:
  monitor_choice monitor = monitor_choice::automatic;  ///< who tells of memory that goes
  bool strict = false;  ///< with userfaultfd: exact also where a thread reuses an address that another unmapped with a
                        ///< raw system call. About 200 ns more for every hit
  bool allocator_hints = false;  ///< with `retain` and a monitor that is proven: have `malloc` give less memory back,
                                 ///< where this process's allocator honours that (R34); undone with the last such cache
  bool program_data = false;  ///< keep registrations of programs' and libraries' text and data: nobody truncates those

  when_full full = when_full::fail;
  close_policy closes = close_policy::inline_;
  bool reaper = false;  ///< run a thread that does the deferred closes, closes local memory that went away within
                        ///< 100 ms (R60), and imports that are idle for `idle_timeout`

  std::chrono::milliseconds full_timeout{1000};   ///< longest wait for room, with `when_full::wait`
  std::chrono::milliseconds conflict_timeout{0};  ///< longest wait for a conflicting lease to end (R6)
  std::chrono::milliseconds wait_timeout{30000};  ///< longest wait for another thread's open or close
  std::chrono::milliseconds drain_timeout{1000};  ///< longest wait for leases and closes at destruction (R42)

  bool entry_statistics = false;    ///< exact hit counts per entry in `dump()`, else sampled (R45)
  bool statistics_at_exit = false;  ///< send a `statistics` event at destruction (R44)

  /// For debugging, of `cache`s whose registrar pins pages: has the kernel say for one hit in so many whether the pages
  /// behind it are still those that were registered; 0 for none. What fails is told to the sink, counted, and not
  /// handed out. Needs CAP_SYS_ADMIN (`cache::monitors` says so when it is missing). Costs: every hit takes the cache's
  /// mutex; an audit about 0.3 us, and 5.5 ns for each page of the registration.
  std::uint32_t audit_one_in = 0;

  /// Tell the sink of every acquire that succeeds (`event_kind::requested`), for recording (`trace_file.hpp`). Costs:
  /// every hit takes the cache's mutex and calls the sink, and batches are opened one by one. `find` is not told.
  bool trace_requests = false;

  event_sink sink{};  ///< who is told; nobody when empty
};

}  // namespace pinfold
