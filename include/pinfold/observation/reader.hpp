// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Reads statistics pages of running, hanging and dead processes. A reader trusts nothing in a page: whatever its bytes
/// are, each function ends, with an error or with values that mean what their types say.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/observation/layout.hpp>
#include <pinfold/statistics.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pinfold::observation {

/// One cache, as its process published it.
struct cache_snapshot {
  std::uint32_t number = 0;                      ///< in its process, from 1 on
  bool ended = false;                            ///< the cache was destroyed, and its slot not reused since
  std::string name;                              ///< printable: other bytes are replaced by '?'
  std::string kind;                              ///< the registrar or importer
  std::string monitors;                          ///< as `cache::monitors` says it
  std::uint32_t shards = 0;                      ///< parts with a mutex of their own
  std::uint64_t max_bytes = 0;                   ///< the budget; 2^64 - 1: unlimited
  std::uint64_t max_count = 0;                   ///< the same
  std::chrono::nanoseconds age{0};               ///< of the cache
  statistics counters;                           ///< as last published
  std::array<histogram, size_classes> misses{};  ///< the whole request, by size class
  std::array<histogram, size_classes> opens{};   ///< the driver's opens
  std::array<histogram, size_classes> closes{};  ///< the driver's closes
  histogram age_at_eviction{};                   ///< since the open
  histogram idle_at_eviction{};                  ///< since the last request, at least
  histogram hits_of_evicted{};                   ///< times 128
  histogram waits{};                             ///< of requests, for other threads or for room
  std::uint64_t errors_written = 0;              ///< failures so far
  std::vector<error_record> errors;              ///< the last ones, oldest first; their texts end with a 0 byte
  std::vector<slow_call> slowest_opens;          ///< slowest first
  std::vector<slow_call> slowest_closes;         ///< slowest first
};

/// The state of a page's process.
enum class process_state : std::uint8_t {
  running,
  stopped,  ///< it runs, and has not published for five periods and more: stopped by a signal, or without processor
            ///< time
  ended,    ///< it ended, and the page stayed: it was killed, or crashed
  unknown,  ///< it has not published for five periods and more, and /proc does not say whether it runs: it is in
            ///< another PID namespace, or hidden, or this process has no descriptor left
};

/// One process.
struct process_snapshot {
  std::string path;                              ///< of the page
  std::int32_t pid = 0;                          ///< in the process's own PID namespace
  std::uint64_t start_time = 0;                  ///< field 22 of /proc/PID/stat
  std::uint32_t user = 0;                        ///< effective user id
  process_state state = process_state::unknown;  ///< as the reader found it
  std::string command;                           ///< the program's name
  std::string library;                           ///< version of pinfold
  std::chrono::nanoseconds age{0};               ///< of the page
  std::chrono::nanoseconds since_published{0};   ///< how old the counters are
  std::uint64_t memlock_limit = 0;               ///< 2^64 - 1: unlimited
  std::uint64_t caches_made = 0;                 ///< so far
  std::uint64_t caches_unlisted = 0;             ///< running, and not in `caches`
  std::uint64_t ranges_gone = 0;                 ///< events that the process's monitors reported
  std::uint64_t events_written = 0;              ///< the number of the next event
  std::vector<cache_snapshot> caches;  ///< those that run, and those that ended and whose slots were not reused
};

/// Returns the folder of this user's pages: PINFOLD_STATS_DIR if it is set, else /dev/shm/pinfold-stats-UID. A relative
/// folder is below the working directory of the first call. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT std::string page_directory();

/// Returns the paths of the pages in a folder, sorted by pid; none if there is no such folder. Thread-safe. Errors: the
/// system's, with its `errno`. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<std::string>> list_pages(const std::string& directory);

/// How many pages with one PID a reader of another user's folder should read at most: that user may put any number of
/// them there. `find_page` looks at all, and reads none of their caches.
inline constexpr std::size_t most_pages_of_process = 64;

/// Returns the path of the page of a process, by its pid: of the running one if several are there. Reads them as
/// `read_page` does. Errors: `invalid_handle` when there is none, with ENOENT.
[[nodiscard]] PINFOLD_EXPORT result<std::string> find_page(const std::string& directory, std::int32_t pid,
                                                           std::optional<std::uint32_t> owner = std::nullopt);

/// Reads a page. The file must belong to the user `owner`; to any user where that is not given. Thread-safe. Errors:
/// `invalid_handle` for a file that is no page, or damaged; `not_permitted`, with EPERM, for one of another user;
/// `unsupported` for a page of a later version; the system's, with its `errno`. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<process_snapshot> read_page(const std::string& path,
                                                                std::optional<std::uint32_t> owner = std::nullopt);

/// An event with its call stack, if one was taken.
struct page_event {
  std::uint64_t number = 0;          ///< in the process, from 0 on
  event_record record{};             ///< the event itself
  std::vector<std::uint64_t> stack;  ///< return addresses in the process, innermost first
};

/// Follows the events of one page. One thread at a time.
class PINFOLD_EXPORT event_reader {
 public:
  /// Opens a page; the first event is the oldest one on it if `from_oldest`, else the next to come. `owner` and errors
  /// as for `read_page`. Throws `std::bad_alloc`.
  [[nodiscard]] static result<event_reader> open(const std::string& path, bool from_oldest = false,
                                                 std::optional<std::uint32_t> owner = std::nullopt);
  event_reader(event_reader&&) noexcept;
  event_reader& operator=(event_reader&&) noexcept;
  ~event_reader();

  /// Returns the events since the last call, in their order. Never waits. Errors: the system's. Throws
  /// `std::bad_alloc`.
  [[nodiscard]] result<std::vector<page_event>> read();

  /// Returns how many events were overwritten before they were read.
  [[nodiscard]] std::uint64_t lost() const noexcept;

  /// Asks the process to take call stacks for `gone` events, for this long from now on. Errors: the system's: it writes
  /// to the page; `invalid_handle` if another file has its name now.
  [[nodiscard]] result<void> want_stacks(std::chrono::nanoseconds how_long) noexcept;

 private:
  struct state;
  explicit event_reader(std::unique_ptr<state> with) noexcept;
  std::unique_ptr<state> state_;
};

/// Returns the kind's name as written above; "?" for a number that this release does not know.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(event_id kind) noexcept;

}  // namespace pinfold::observation
