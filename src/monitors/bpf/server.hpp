// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The privileged process that loads the kernel programs for other processes and gives each the ring of its own address
/// space.
#pragma once

#include "monitors/bpf/slots.hpp"
#include "monitors/bpf/wire.hpp"
#include "os/background_closer.hpp"
#include "os/file.hpp"
#include "os/message.hpp"

#include <pinfold/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <vector>

namespace pinfold::monitors {

/// The longest time in which a client that got a secret passes it. Tests make it longer.
inline std::chrono::milliseconds bpf_secret_timeout{5000};

struct bpf_server_options {
  /// The path where the server listens; its folder must exist. A path that begins with '@' has no file.
  std::string socket = "/run/pinfold/monitord";
  /// The permissions of the socket: by default any user may connect. A name without a file has no others.
  mode_t mode = 0666;
  /// The most rings of one user, root excepted; 100 KB each. Counts a process that has closed its connection as long as
  /// it has its slot, and a ring as long as any process has it open or mapped.
  std::size_t most_per_user = 128;
  /// The most sets of programs that the server drops after a user other than root had their links; it keeps the next
  /// set until it ends. Such a user may keep all of them attached.
  int most_dropped = 16;
};

/// A loop over connections, none of which can delay another. The server loads the kernel programs for the first client
/// and drops them a second after the last has left, so that they do not slow down the system in between; at most
/// `most_dropped` times. The end of this process does not affect the clients: they have the links.
///
/// A client gets a ring of its own, for the address space that passes the secret, which only that connection received.
/// The server refuses a secret that another process passes.
class bpf_server {
 public:
  /// Listens, and loads the programs once to check that this is possible. Errors are those of `bpf_programs::load`, and
  /// `invalid_argument` for a path where another server listens, or that is not a socket.
  [[nodiscard]] static result<std::unique_ptr<bpf_server>> start(const bpf_server_options& options);
  bpf_server(const bpf_server&) = delete;
  bpf_server& operator=(const bpf_server&) = delete;
  ~bpf_server();

  /// Serves until `stop` is called.
  void run();
  /// For any thread and any signal handler.
  void stop() noexcept;

  /// Returns the number of clients that have a ring or wait for one. For any thread.
  [[nodiscard]] std::size_t clients() const noexcept { return client_count_.load(std::memory_order_relaxed); }

 private:
  struct client {
    os::file socket;
    ucred credentials;
    bpf_slot slot;
    bool served;         ///< has its ring
    std::int64_t since;  ///< when the client got its secret, in milliseconds
  };

  /// A slot that an address space has kept when its connection ended.
  struct left_slot {
    std::uint32_t number;
    std::uint64_t owner;
    ucred credentials;
  };

  bpf_server(const bpf_server_options& options, os::file listener, os::file wake, os::file lent_rings);

  [[nodiscard]] bool wait();
  [[nodiscard]] bool rest() const noexcept;
  [[nodiscard]] int poll_timeout() const;
  void let_go();
  void hear_all();
  [[nodiscard]] bool hear(client& from);
  [[nodiscard]] bool hand_out(client& to);
  [[nodiscard]] int refusal(const client& asker, const pinfold_invitation& invitation) const;
  void accept_some();
  [[nodiscard]] bool has_all_rings(uid_t user) const;
  [[nodiscard]] int lend(const client& to);
  [[nodiscard]] std::vector<client> next_batch();
  void invite_some();
  [[nodiscard]] int why_not(client& asker);
  void greet(client& asker, int refused);
  [[nodiscard]] std::size_t rings_beside(const ucred& asker) const;
  void forget_left();
  void release(client& one);
  [[nodiscard]] bool may_drop() const noexcept;

  const bpf_server_options options_;
  os::file listener_;
  const os::file wake_;
  const os::file lent_rings_;         ///< an epoll: of users other than root, as long as a process has them
  struct stat made_{};                ///< the socket's file
  os::background_closer closer_;      ///< of the listener, and of connections: to any user
  std::unique_ptr<bpf_slots> slots_;  ///< set while there are clients, and a while longer
  std::int64_t idle_since_ = 0;
  bool lent_ = false;  ///< a user other than root got links of the current set
  int dropped_ = 0;    ///< sets of which that is true
  std::vector<client> clients_;
  std::vector<client> waiting_;  ///< accepted, without a slot
  std::vector<left_slot> left_;
  std::atomic<std::size_t> client_count_{0};
  std::vector<pollfd> polled_;  ///< wake, listener, then the clients in their order
  bool resting_ = false;        ///< no descriptor was free for a client
};

}  // namespace pinfold::monitors
