// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The two ways to this process's ring: its own kernel programs, or those of a server.
#pragma once

#include "monitors/bpf/programs.hpp"
#include "os/file.hpp"

#include <pinfold/error.hpp>

#include <chrono>
#include <cstdint>
#include <string_view>

namespace pinfold::monitors {

/// The longest time for one answer of a server. Tests make it longer.
inline std::chrono::seconds bpf_answer_timeout{5};

/// A ring in which the kernel records this address space's events while the links and the connection are open.
struct bpf_subscription {
  os::file ring;
  std::uint64_t first_generation = 0;
  bpf_links links;
  os::file connection;  ///< to the server; empty without a server
};

/// Subscribes to kernel programs that this process loads. Errors are those of `bpf_programs::load`.
[[nodiscard]] result<bpf_subscription> bpf_subscribe_here() noexcept;

/// Subscribes to the server at that path, whose user must be root or this user. `unsupported`: no server listens there,
/// it has another version, or it already serves another monitor of this address space. `not_permitted`: the server
/// refuses, or belongs to another user. `timed_out` after some seconds.
[[nodiscard]] result<bpf_subscription> bpf_subscribe_at(std::string_view socket) noexcept;

}  // namespace pinfold::monitors
