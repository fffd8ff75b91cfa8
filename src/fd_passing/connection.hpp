// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The pidfd and the connections that an importer keeps between two opens of one exporter.
#pragma once

#include "fd_passing/exporter_id.hpp"
#include "os/file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <unistd.h>

namespace pinfold::fd_passing {

using os::file;

/// The connections to one exporter. Thread-safe: every fetch uses a connection of its own, so fetches run in parallel.
/// A link does not recover from the end of the exporter's process; the table then forgets it.
class connection {
 public:
  /// When `process` is empty, `reason` says why, and only the socket can be used.
  connection(file process, error reason) noexcept : process_(std::move(process)), reason_(reason) {}

  /// Fetches the descriptor by `via`; `automatic` tries both ways. The result is a wrong descriptor when the exporter
  /// uses the number for another file by now.
  [[nodiscard]] result<file> fetch(transport via, const fd_request& what) noexcept;

 private:
  static constexpr std::size_t most_idle = 8;

  [[nodiscard]] result<file> fetch_by_pidfd(const fd_request& what) noexcept;
  [[nodiscard]] result<file> fetch_by_socket(const fd_request& what) noexcept;
  [[nodiscard]] result<file> connect(const exporter_id& from) const noexcept;
  [[nodiscard]] result<file> ask_and_keep(file socket, std::uint64_t serial) noexcept;
  [[nodiscard]] error no_answer(const error& seen) const noexcept;
  [[nodiscard]] file take_idle() noexcept;
  void keep(file socket) noexcept;

  const file process_;
  const error reason_;
  std::mutex mutex_;
  std::size_t idle_count_ = 0;
  std::array<file, most_idle> idle_;
};

/// The links of one importer, at most `most` of them; the least recently used one makes room. Thread-safe.
class connection_table {
 public:
  static constexpr std::size_t most = 256;

  /// Returns the link to the exporter, and makes it when there is none. A `pidfd` fetch needs the process, so the
  /// errors are those of `open_process`. The socket may be reachable without the process, for example from another PID
  /// namespace.
  [[nodiscard]] result<std::shared_ptr<connection>> find_or_make(transport via, const exporter_id& to) noexcept;

  /// Forgets one link after its process has ended.
  void forget(const exporter_id& to) noexcept;

  /// Closes every descriptor that no fetch is using now. Returns false when there was none.
  [[nodiscard]] bool forget_all() noexcept;

 private:
  struct slot {
    std::shared_ptr<connection> to;
    std::uint64_t last_use;
  };
  using slots = std::map<exporter_id, slot>;

  [[nodiscard]] std::shared_ptr<connection> find(const exporter_id& to) noexcept;
  [[nodiscard]] std::shared_ptr<connection> add(slots made) noexcept;

  std::mutex mutex_;
  slots slots_;
  std::uint64_t uses_ = 0;
  pid_t process_ = ::getpid();
};

}  // namespace pinfold::fd_passing
