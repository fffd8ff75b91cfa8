// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The pidfd and the connections that an importer keeps between two opens of one exporter.
#pragma once

#include "fd_passing/exporter_id.hpp"
#include "os/file.hpp"
#include "os/this_process.hpp"
#include "os/thread.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <utility>
#include <vector>

namespace pinfold::fd_passing {

using os::file;

/// The connections to one exporter. Thread-safe: every fetch uses a connection of its own, so fetches run in parallel.
/// While the exporter owes an answer for which a fetch has waited in vain, as when it is stopped, others fail at once.
/// A link does not recover from the end of the exporter's process; the table then forgets it.
class connection {
 public:
  /// If `process` is empty, `reason` is the error, and only the socket can be used.
  connection(file process, error reason) noexcept : process_(std::move(process)), reason_(reason) {}

  /// Fetches the descriptor by `via`; `automatic` tries both ways. The result is a wrong descriptor if the exporter
  /// uses the number for another file by now.
  [[nodiscard]] result<file> fetch(transport via, const fd_request& what) noexcept;

  /// Returns the pidfd of the exporter's process; empty if this process cannot see it.
  [[nodiscard]] const file& process() const noexcept { return process_; }

 private:
  static constexpr std::size_t most_idle = 8;

  [[nodiscard]] result<file> fetch_by_pidfd(const fd_request& what) noexcept;
  [[nodiscard]] result<file> fetch_by_socket(const fd_request& what) noexcept;
  [[nodiscard]] result<file> connect(const exporter_id& from) noexcept;
  [[nodiscard]] result<file> ask_and_keep(file socket, std::uint64_t serial) noexcept;
  [[nodiscard]] error no_answer(const error& seen) const noexcept;
  [[nodiscard]] bool owes_answer() noexcept;
  void keep_unanswered(file socket) noexcept;
  [[nodiscard]] file take_idle() noexcept;
  void keep(file socket) noexcept;

  const file process_;
  const error reason_;
  std::mutex mutex_;
  std::size_t idle_count_ = 0;
  std::array<file, most_idle> idle_;
  std::atomic<bool> late_{false};  ///< the last connect ended for want of room at the exporter's socket
  file unanswered_;                ///< over which the exporter has not answered in time, and may yet
};

/// The links of one importer, at most `most`; a new one replaces the least recently used, if possible of an exporter
/// without open memory. Thread-safe.
class connection_table : public std::enable_shared_from_this<connection_table> {
 public:
  static constexpr std::size_t most = 256;
  using end_call = std::function<void(const exporter_id& ended)>;
  using use_call = std::function<bool(const exporter_id& of)>;

  connection_table() noexcept = default;
  /// Forgets a link when its process ends, and then calls `ended` on a thread of its own, and never after the table
  /// ends. The first link to a visible process starts that thread. The table belongs to a std::shared_ptr. If no thread
  /// can be started, links stay until their next use, and `ended` is not called. `in_use` says whether memory of an
  /// exporter is open; the table calls it with its lock held. The thread makes a link to such an exporter again within
  /// two seconds after `forget_all`.
  connection_table(end_call ended, use_call in_use) noexcept : ended_(std::move(ended)), in_use_(std::move(in_use)) {}
  connection_table(const connection_table&) = delete;
  connection_table& operator=(const connection_table&) = delete;
  ~connection_table() { end(); }

  /// Joins the thread, unless this is it. Called by the last owner, after which no other member is called.
  void end() noexcept { thread_.stop(); }

  /// Returns the link to the exporter, and makes it if there is none. A `pidfd` fetch needs the process, so the errors
  /// are those of `open_process`. The socket may be reachable without the process, for example from another PID
  /// namespace.
  [[nodiscard]] result<std::shared_ptr<connection>> find_or_make(transport via, const exporter_id& to) noexcept;

  /// Forgets one link after its process has ended.
  void forget(const exporter_id& to) noexcept;

  /// Closes every descriptor that no fetch is using now. Returns false if there was none.
  [[nodiscard]] bool forget_all() noexcept;

 private:
  struct slot {
    std::shared_ptr<connection> to;
    std::uint64_t last_use;
  };
  using slots = std::map<exporter_id, slot>;

  [[nodiscard]] static bool has_lost_process(const slot& one) noexcept;
  [[nodiscard]] std::shared_ptr<connection> find(const exporter_id& to) noexcept;
  [[nodiscard]] std::shared_ptr<connection> add(slots made) noexcept;
  void watch_locked() noexcept;

  static void wait_for_ends(void* self) noexcept;
  void wait_for_end(std::vector<pollfd>& watched) noexcept;
  void forget_ended() noexcept;
  void watch_again() noexcept;
  void add_again(slots made) noexcept;
  [[nodiscard]] static std::shared_ptr<connection> made_of(file process) noexcept;

  std::mutex mutex_;
  slots slots_;
  slots forgotten_;  ///< without their links, which the thread makes again
  std::chrono::steady_clock::time_point watch_again_at_;
  std::uint64_t uses_ = 0;
  std::uint64_t process_ = os::this_process();
  const std::uint64_t maker_ = os::this_process();
  const end_call ended_;
  const use_call in_use_;
  bool watches_ = false;
  os::thread thread_;
};

}  // namespace pinfold::fd_passing
