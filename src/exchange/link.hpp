// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What an importer keeps between two opens of one exporter: its pidfd, and connections to its socket.
#pragma once

#include "exchange/file.hpp"
#include "exchange/origin.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <unistd.h>

namespace pinfold::exchange {

/// The way to one exporter. Thread-safe: every fetch uses a connection of its own, so they run in parallel. It never
/// recovers from the end of the process; then it is forgotten.
class link {
 public:
  /// `process` may be nothing, with the reason: then only the socket can be used.
  link(file process, error reason) noexcept : process_(std::move(process)), reason_(reason) {}

  /// The descriptor, that way. `automatic` tries both. The descriptor can be a wrong one,
  /// when the exporter uses the number for something else by now.
  [[nodiscard]] result<file> fetch(way via, const wanted& what) noexcept;

 private:
  static constexpr std::size_t most_idle = 8;

  [[nodiscard]] result<file> fetch_by_pidfd(const wanted& what) noexcept;
  [[nodiscard]] result<file> fetch_by_socket(const wanted& what) noexcept;
  [[nodiscard]] result<file> connect(const origin& from) const noexcept;
  [[nodiscard]] result<file> ask_and_keep(file socket, std::uint64_t serial) noexcept;
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

  /// The link to the exporter, made when there is none. A `pidfd` fetch needs the process: then errors are
  /// those of `open_process`. A socket may be reachable without, from another PID namespace for example.
  [[nodiscard]] result<std::shared_ptr<link>> find_or_make(way via, const origin& to) noexcept;

  /// Forgets one, its process having ended.
  void forget(const origin& to) noexcept;

  /// Closes every descriptor that no fetch is using just now. False when there was none.
  [[nodiscard]] bool forget_all() noexcept;

 private:
  struct slot {
    std::shared_ptr<link> to;
    std::uint64_t last_use;
  };
  using slots = std::map<origin, slot>;

  [[nodiscard]] std::shared_ptr<link> find(const origin& to) noexcept;
  [[nodiscard]] std::shared_ptr<link> add(slots made) noexcept;

  std::mutex mutex_;
  slots slots_;
  std::uint64_t uses_ = 0;
  pid_t process_ = ::getpid();
};

}  // namespace pinfold::exchange
