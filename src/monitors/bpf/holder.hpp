// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The thread that keeps the kernel programs attached.
#pragma once

#include "monitors/bpf/programs.hpp"
#include "os/file.hpp"
#include "os/this_process.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <pthread.h>

namespace pinfold::monitors {

/// Holds the links, and the connection to the server, in the descriptor table of a thread of its own. A program that
/// closes all its descriptors (closefrom(3)) would otherwise detach the programs, and no event would show it. Children
/// of fork(2) do not inherit that table, and exec closes it.
///
/// The thread needs no descriptor to be woken, and ends for no other reason than `end`, or the end of its process.
class bpf_holder {
 public:
  bpf_holder() noexcept = default;
  bpf_holder(const bpf_holder&) = delete;
  bpf_holder& operator=(const bpf_holder&) = delete;
  ~bpf_holder() { end(); }

  /// Starts the thread. On return it holds the descriptors, and this process's own table has them no more.
  /// `out_of_resources` if the thread cannot be started or cannot have a table of its own.
  [[nodiscard]] result<void> start(bpf_links links, os::file connection) noexcept;

  /// Closes the descriptors, and waits for the thread's end. Does nothing in a child of fork(2).
  void end() noexcept;

 private:
  enum state : int { starting, failed, holding, ending };

  static void* main(void* self) noexcept;
  [[nodiscard]] int create() noexcept;
  [[nodiscard]] int take_over() noexcept;

  const std::uint64_t process_ = os::this_process();
  pthread_t thread_{};
  bool running_ = false;
  std::atomic<int> state_{starting};
  int native_ = 0;  // why the thread failed
  std::array<int, bpf_link_count + 1> numbers_{};
  std::size_t count_ = 0;
  const os::file* connection_ = nullptr;  // while the thread starts
};

}  // namespace pinfold::monitors
