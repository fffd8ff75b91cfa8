// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The state of a listener: its mappings by memory, and its connections to exporters.
#pragma once

#include "os/condition.hpp"
#include "os/this_process.hpp"
#include "os/thread.hpp"
#include "release/attached_caches.hpp"
#include "release/endpoint.hpp"
#include "release/retired_serials.hpp"

#include <pinfold/release/listener.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <set>
#include <thread>
#include <vector>

namespace pinfold {

/// `mutex` guards all that is not constant or thread-safe itself. The order of the states under it is the order of the
/// messages on a connection, and in `answers`. No cache and no `send` is called with the mutex held.
struct release_listener::state : std::enable_shared_from_this<release_listener::state> {
  using endpoint = release::endpoint;
  static constexpr std::size_t most_requests = 1024;  ///< of one exporter, read and not processed
  /// The same for an opener, whose answer comes behind them: in a `serial` cache the thread waits until it has opened.
  static constexpr std::size_t most_before_answer = 65536;
  static constexpr std::size_t most_unsent = 65536;  ///< messages to an exporter that does not read
  static constexpr auto no_memory_text = "no memory for the importer's own records";
  static constexpr auto retired_text = "the exporter is retiring this memory, or has freed it";
  /// One answer of a listener without a thread, allocated before the change that it reports, which cannot be undone.
  using answer_room = std::list<release_message>;

  struct memory {
    std::vector<release::mapped_range> mappings;
    std::uint64_t retirement = 0;  ///< 0: its exporter has not requested it
    bool asked = false;            ///< its exporter has requested it
    bool marked = false;           ///< requested, and its mappings were invalidated in every cache attached then
    answer_room last;              ///< for `gone`; empty in a listener with a thread
  };
  struct connection {
    endpoint at;
    std::deque<release_message> unsent;
    std::deque<release_message> requests;  ///< for the thread to process
    bool has_reader = false;               ///< a thread that opens memory reads from it
    bool unanswered = false;               ///< an open waited in vain, and no message has come since
    bool broken = false;                   ///< the thread invalidates the exporter's memory, and erases the connection
  };
  struct open_wait {
    std::uint64_t exporter = 0;
    std::optional<release_kind> said;
    bool broken = false;
    bool no_memory = false;        ///< the importer could not queue the message
    bool exporter_is_out = false;  ///< the exporter had no memory to count the importer
  };

  state() noexcept = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state();

  [[nodiscard]] bool inherited() const noexcept { return os::this_process() != process; }

  // Opens and closes, on the threads of the program.
  [[nodiscard]] result<std::uint64_t> begin_open(const release_target& what);
  [[nodiscard]] result<std::uint64_t> begin_open_carried(const release_target& what);
  [[nodiscard]] result<void> connect(std::unique_lock<std::mutex>& guard, const release_target& what);
  void note_late(std::uint64_t exporter, bool is_late);
  [[nodiscard]] bool drop_idle() noexcept;
  [[nodiscard]] result<void> ask(std::unique_lock<std::mutex>& guard, const release_target& what);
  [[nodiscard]] bool wait_for_answer(std::unique_lock<std::mutex>& guard, const open_wait& mine);
  void read_once(std::unique_lock<std::mutex>& guard, std::uint64_t exporter, connection& from,
                 std::chrono::milliseconds most);
  [[nodiscard]] static error unanswered(std::unique_lock<std::mutex>& guard, const release_target& what) noexcept;
  void closed(const release_id& id, std::uint64_t number) noexcept;

  // Requests.
  result<void> receive(const release_message& request) noexcept;
  void invalidate_asked() noexcept;
  void unmark() noexcept;
  result<void> progress() noexcept;
  void progress_caches() noexcept;

  // The thread.
  void loop() noexcept;
  [[nodiscard]] bool serve(std::uint64_t exporter) noexcept;
  void invalidate_ended() noexcept;
  void invalidate_broken() noexcept;
  void wait_for_readers() noexcept;
  void wait(std::vector<pollfd>& watched) noexcept;

  /// Sends the messages that had no room, at the end of the listener: otherwise the exporter counts this importer until
  /// its process ends.
  static void send_rest(connection& to, std::chrono::steady_clock::time_point deadline) noexcept;

  /// Calls `send` for each of `answers`, without the mutex, until it fails; returns the error. If another thread does
  /// so already, leaves them to that thread. Unlocks the mutex.
  result<void> send_answers(std::unique_lock<std::mutex>& guard) noexcept;
  /// Waits until no other thread is in `send`, and prevents further calls of it.
  void end_sending() noexcept;

  // The caller holds the mutex.
  void mark(memory& asked, std::vector<release::mapped_range>& gone) noexcept;
  void tell(const release_id& id, std::uint64_t retirement, release_state said, answer_room& in) noexcept;
  void queue(std::uint64_t exporter, const release_message& message) noexcept;
  static void flush(connection& to) noexcept;
  void break_off(std::uint64_t exporter, connection& to) noexcept;
  void read(std::uint64_t exporter, connection& from, std::size_t most) noexcept;
  void take(const release_message& message, connection& from) noexcept;
  void drop(const release_id& id, std::uint64_t number) noexcept;

  const std::uint64_t process = os::this_process();
  release::attached_caches caches;
  std::mutex mutex;
  os::condition answered;
  std::map<release_id, memory> memories;
  std::map<std::uint64_t, connection> connections;  ///< by exporter
  std::set<std::uint64_t> late;                     ///< exporters whose socket had no room for the last connection
  std::map<std::uint64_t, open_wait> waits;         ///< by tag
  release_listener_statistics counts;
  bool some_unmarked = false;  ///< requested memory may not be marked
  bool closes_fail = false;    ///< at the last check: closes of quarantined mappings are not tried at each one
  std::uint64_t last_number = 0;
  std::atomic<bool> invalidated{false};  ///< memory of ended exporters, which the thread has not closed yet
  os::thread thread;

  // Of a listener without a thread.
  send_call send;
  release::retired_serials retired;
  std::list<release_message> answers;     ///< not yet sent
  std::optional<std::thread::id> sender;  ///< the thread that passes them on
  bool send_ended = false;                ///< `send` must not be called
  os::condition sent;                     ///< `sender` was reset
};

}  // namespace pinfold
