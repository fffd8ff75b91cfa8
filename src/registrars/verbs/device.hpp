// SPDX-License-Identifier: BSD-3-Clause
#pragma once

struct ibv_context;

namespace pinfold::verbs {

/// Returns whether the device was removed under the context: the kernel then answers every call with EIO, and has
/// destroyed all objects of the context.
[[nodiscard]] bool is_gone(::ibv_context* context) noexcept;

}  // namespace pinfold::verbs
