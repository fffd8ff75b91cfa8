// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The exporter's end of the release protocol over a Unix socket.
#pragma once

#include "os/background_closer.hpp"
#include "os/this_process.hpp"
#include "os/thread.hpp"
#include "release/endpoint.hpp"
#include "release/retirements.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <vector>

namespace pinfold::release {

class server;
using server_owner = std::unique_ptr<server>;

/// A thread that admits importers, asks them to let memory go, and detects their end. It waits for no importer.
class server {
 public:
  static constexpr std::size_t most_importers = 1024;
  static constexpr std::ptrdiff_t most_of_a_process = 128;

  /// Starts the thread. Listens at the exporter's name, unless it is given the socket. Errors: `out_of_resources`, and
  /// the system's.
  [[nodiscard]] static result<server_owner> start(std::uint64_t exporter, std::size_t limbo_bytes,
                                                  os::file listener = {}) noexcept;
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// Stops the thread, and frees everything in limbo. In a forked child, only closes the descriptors.
  ~server();

  [[nodiscard]] const std::shared_ptr<release_registry>& registry() const noexcept { return registry_; }
  [[nodiscard]] release_statistics statistics() const noexcept { return retirements_->statistics(); }

  /// Begins a retirement. On an error, nothing has changed, and `free` is not taken.
  [[nodiscard]] result<retirement> begin(std::uint64_t serial, std::size_t bytes, std::chrono::milliseconds timeout,
                                         free_call& free) noexcept;

  /// Retires memory that the program frees itself, and waits until its importers have answered. Returns how many still
  /// hold the memory. Errors: `out_of_resources`.
  [[nodiscard]] result<std::size_t> announce(std::span<const std::uint64_t> serials,
                                             std::chrono::milliseconds timeout) noexcept;

 private:
  struct importer {
    std::uint64_t number;
    endpoint at;
    std::optional<release_message> unsent;  ///< an answer for which the connection had no room
    bool waits_for_room = false;
    bool broken = false;  ///< its process still runs, and may hold memory
  };

  server(std::uint64_t exporter, std::size_t limbo_bytes, os::file listener);

  void hang_up() const noexcept;

  // The thread calls all functions below.
  static void run(void* self) noexcept;
  void loop() noexcept;
  void wait() noexcept;
  void serve(importer& one) noexcept;
  void read(importer& one) noexcept;
  void read_rest(importer& one) noexcept;
  void write(importer& one) noexcept;
  [[nodiscard]] bool send(importer& one, const release_message& message) noexcept;
  void end(importer& one) noexcept;
  [[nodiscard]] bool has_many(pid_t process) const noexcept;
  void accept_some() noexcept;

  const std::shared_ptr<release_registry> registry_;
  const std::shared_ptr<retirements> retirements_;
  const std::uint64_t process_ = os::this_process();
  os::file listener_;
  os::background_closer closer_;  ///< of the listener, and of connections that are not admitted
  std::vector<importer> importers_;
  std::vector<pollfd> watched_;  ///< wake, listener, then socket and process of each importer
  std::uint64_t last_number_ = 0;
  bool resting_ = false;  ///< no descriptor was free for a connection
  os::thread thread_;
};

}  // namespace pinfold::release
