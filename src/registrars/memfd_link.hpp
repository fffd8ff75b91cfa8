// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What an importer keeps between two opens of one exporter: its pidfd, and connections to its socket.
#pragma once

#include "registrars/memfd_file.hpp"
#include "registrars/memfd_handle.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <unistd.h>

namespace pinfold::memfd {

/// The way to one exporter. Thread-safe: every fetch uses a connection of its own, so they run in parallel. It never
/// recovers from the end of the process; then it is forgotten.
class link {
 public:
  /// `process` may be nothing, with the reason: then only the socket can be used.
  link(file process, error reason) noexcept : process_(std::move(process)), reason_(reason) {}

  /// The exporter's descriptor for the handle, that way. `automatic` tries both. The descriptor can be a wrong one,
  /// when the exporter uses the number for something else by now.
  [[nodiscard]] result<file> fetch(memfd_via via, const memfd_handle& handle) noexcept;

 private:
  static constexpr std::size_t most_idle = 8;

  [[nodiscard]] result<file> fetch_by_pidfd(const memfd_handle& handle) noexcept;
  [[nodiscard]] result<file> fetch_by_socket(const memfd_handle& handle) noexcept;
  [[nodiscard]] result<file> connect(const memfd_handle& handle) const noexcept;
  [[nodiscard]] result<file> ask_and_keep(file socket, const memfd_handle& handle) noexcept;
  [[nodiscard]] error nobody_answers(const error& seen) const noexcept;
  [[nodiscard]] file take_idle() noexcept;
  void keep(file socket) noexcept;

  const file process_;
  const error reason_;
  std::mutex mutex_;
  std::size_t idle_count_ = 0;
  std::array<file, most_idle> idle_;
};

/// The links of one importer, at most `most` of them; the least recently used one makes room. Thread-safe.
class link_table {
 public:
  static constexpr std::size_t most = 256;

  /// The link to the handle's exporter, made when there is none. A `pidfd` fetch needs the process: then errors are
  /// those of `open_process`. A socket may be reachable without, from another PID namespace for example.
  [[nodiscard]] result<std::shared_ptr<link>> find_or_make(memfd_via via, const memfd_handle& handle) noexcept;

  /// Forgets one, its process having ended.
  void forget(const memfd_handle& handle) noexcept;

  /// Closes every descriptor that no fetch is using just now. False when there was none.
  [[nodiscard]] bool forget_all() noexcept;

 private:
  struct key {
    std::uint64_t exporter;
    std::uint64_t start_time;
    std::int32_t pid;
    friend auto operator<=>(const key&, const key&) noexcept = default;
  };
  struct slot {
    std::shared_ptr<link> to;
    std::uint64_t last_use;
  };
  using slots = std::map<key, slot>;

  static key key_of(const memfd_handle& handle) noexcept { return {handle.exporter, handle.start_time, handle.pid}; }
  [[nodiscard]] std::shared_ptr<link> find(const key& wanted) noexcept;
  [[nodiscard]] std::shared_ptr<link> add(slots made) noexcept;

  std::mutex mutex_;
  slots slots_;
  std::uint64_t uses_ = 0;
  pid_t process_ = ::getpid();
};

}  // namespace pinfold::memfd
