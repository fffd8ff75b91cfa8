// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The helper with privileges that lets ordinary programs use the monitor `bpf`; what `pinfold monitord` runs.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <memory>
#include <string>

namespace pinfold {

struct monitor_server_options {
  std::string socket = "/run/pinfold/monitord";  ///< where it listens; its folder has to exist. Caches ask
                                                 ///< there, or where PINFOLD_MONITORD says
  unsigned mode = 0666;                          ///< who may ask: permissions of the socket
};

/// Hands each process that asks what the kernel records about that process's own memory, and nothing else: who asks is
/// what the kernel says (SO_PEERCRED). Loads the kernel programs while somebody needs them, which makes every system
/// call in the system about 24 ns longer. When it ends, those who have asked already do not notice.
class PINFOLD_EXPORT monitor_server {
 public:
  /// Listens. `not_permitted` without CAP_BPF and CAP_PERFMON; `unsupported` where the kernel lacks what is needed, or
  /// the library was built without libbpf; `invalid_argument` for a path where somebody listens, or that is no socket.
  [[nodiscard]] static result<monitor_server> start(const monitor_server_options& options = {});
  monitor_server(monitor_server&&) noexcept;
  monitor_server& operator=(monitor_server&&) noexcept;
  ~monitor_server();

  /// Serves until `stop` is called; returns at once when the server was moved from.
  void run();
  /// Any thread, any signal handler.
  void stop() noexcept;

 private:
  struct inside;
  explicit monitor_server(std::unique_ptr<inside> made) noexcept;
  std::unique_ptr<inside> inside_;
};

}  // namespace pinfold
