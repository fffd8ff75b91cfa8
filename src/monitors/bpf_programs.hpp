// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The kernel programs of monitors/bpf, loaded and attached.
#pragma once

#include "monitors/bpf_descriptor.hpp"

#include <pinfold/error.hpp>

#include <array>
#include <cstddef>

namespace pinfold::monitors {

/// What keeps the programs at work, in the whole system: they are detached once nobody has a link open, in whichever
/// process, and nobody can detach them before.
constexpr std::size_t bpf_link_count = 6;
using bpf_links = std::array<bpf_descriptor, bpf_link_count>;

struct bpf_programs {
  bpf_links links;
  bpf_descriptor rings;
  bpf_descriptor places;
  bpf_descriptor invitations;

  /// `not_permitted` without CAP_BPF and CAP_PERFMON. `unsupported` where this library was built without them, and on a
  /// kernel that lacks something of what they need. Some tens of milliseconds; thread-safe.
  [[nodiscard]] static result<bpf_programs> load() noexcept;
};

}  // namespace pinfold::monitors
