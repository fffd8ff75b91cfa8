// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The privileged helper that lets ordinary programs use the monitor `bpf`; `pinfold monitord` runs it.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <memory>
#include <string>

namespace pinfold {

/// Options of the server.
struct monitor_server_options {
  std::string socket = "/run/pinfold/monitord";  ///< path of the socket; its directory must exist. Caches connect to
                                                 ///< this path, or to the one in PINFOLD_MONITORD
  unsigned mode = 0666;                          ///< permissions of the socket: the users that may connect
};

/// A server that gives each client process the kernel's records about that process's own memory, and nothing else. The
/// kernel identifies the client (SO_PEERCRED). The server keeps the kernel programs loaded while a client needs them;
/// meanwhile every system call in the system takes about 24 ns longer. Clients that are already served keep working
/// when the server ends.
class PINFOLD_EXPORT monitor_server {
 public:
  /// Starts to listen. Errors: `not_permitted` (no CAP_BPF and CAP_PERFMON), `unsupported` (the kernel is too old or
  /// lacks a feature, or the library was built without libbpf), `invalid_argument` (another process listens at the
  /// path, or the path is not a socket).
  [[nodiscard]] static result<monitor_server> start(const monitor_server_options& options = {});
  monitor_server(monitor_server&&) noexcept;
  monitor_server& operator=(monitor_server&&) noexcept;
  ~monitor_server();

  /// Serves clients until `stop` is called; returns at once if the server was moved from.
  void run();
  /// Ends `run`. May be called on any thread and in any signal handler.
  void stop() noexcept;

 private:
  struct inside;
  explicit monitor_server(std::unique_ptr<inside> made) noexcept;
  std::unique_ptr<inside> inside_;
};

}  // namespace pinfold
