// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The kernel programs of monitors/bpf, loaded and attached.
#pragma once

#include "os/file.hpp"

#include <pinfold/error.hpp>

#include <array>
#include <cstddef>

namespace pinfold::monitors {

/// The links, which keep the programs attached in the whole system: the kernel detaches a program when no process has
/// its link open any more.
constexpr std::size_t bpf_link_count = 7;
using bpf_links = std::array<os::file, bpf_link_count>;

struct bpf_programs {
  bpf_links links;
  os::file rings;
  os::file slots;
  os::file invitations;

  /// Loads and attaches the programs, in some tens of milliseconds; thread-safe. `not_permitted` without CAP_BPF and
  /// CAP_PERFMON. `unsupported` if this library was built without libbpf, or the kernel lacks a feature that they need.
  [[nodiscard]] static result<bpf_programs> load() noexcept;
};

}  // namespace pinfold::monitors
