// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages between a process and the process that loads the kernel programs for it, over a SOCK_SEQPACKET socket:
///
///     server: a secret                (or why there is none)
///     client: the secret is passed    (by prctl, in its own address space: slots.hpp)
///     server: your ring               with its descriptor and the links (or why not)
///
/// The connection lasts as long as the client uses its ring.
#pragma once

#include "monitors/bpf/layout.h"
#include "monitors/bpf/programs.hpp"
#include "os/message.hpp"

#include <pinfold/error.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <sys/un.h>

namespace pinfold::monitors {

constexpr std::uint32_t bpf_wire_version = 2;  ///< of the messages, the links, and a ring's layout

struct bpf_message {
  std::uint32_t version = bpf_wire_version;
  std::int32_t refused = 0;  ///< 0, or an errno value
  pinfold_secret secret{};
  std::uint64_t first_generation = 0;
};

/// The ring's descriptor comes first, then the links.
constexpr std::size_t bpf_passed_count = 1 + bpf_link_count;
static_assert(bpf_passed_count <= os::most_passed);
using bpf_passed = std::array<int, bpf_passed_count>;

/// The address of a path. A path that begins with '@' is in Linux's abstract name space, without a file.
/// `invalid_argument` if the path is too long.
struct bpf_address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  [[nodiscard]] static result<bpf_address> of(std::string_view path) noexcept;
};

[[nodiscard]] bool bpf_send(int socket, const bpf_message& what, const bpf_passed* descriptors = nullptr) noexcept;

/// A received message. Errors: `peer_gone`, `timed_out` if the socket has a time limit, and `unsupported` for another
/// version. If some of the descriptors are missing, the others are closed.
struct bpf_received {
  bpf_message message;
  os::file ring;
  bpf_links links;
};
[[nodiscard]] result<bpf_received> bpf_receive(int socket) noexcept;

}  // namespace pinfold::monitors
