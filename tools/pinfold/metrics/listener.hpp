// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A socket that listens at a path, or at a loopback address.
#pragma once

#include <string>
#include <sys/stat.h>

namespace tool {

/// Closes its socket, unless that was handed over, and removes the socket's file, unless another one has its name.
class listener {
 public:
  /// Listens. An address has a `/` when it is a path; else it is `127.0.0.1:PORT` or `[::1]:PORT`. The path's socket is
  /// for this user; one that a killed server left there is replaced. Throws `usage_failure` for another address, and
  /// `failure` when the kernel refuses.
  explicit listener(const std::string& address);
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;
  ~listener();

  /// Returns the socket, which the caller closes.
  [[nodiscard]] int hand_over() noexcept;

  /// Returns what a client gives `curl`: the URL, with the port that the kernel chose for port 0.
  [[nodiscard]] std::string url() const;

  [[nodiscard]] bool is_path() const noexcept { return !path_.empty(); }

 private:
  void listen_at_path(const std::string& path);
  void listen_at_address(const std::string& address);

  int socket_ = -1;
  std::string path_;
  struct stat made_{};  // the socket's file
  std::string host_ = "localhost";
};

}  // namespace tool
