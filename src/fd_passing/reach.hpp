// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds out whether a descriptor could be fetched, without fetching it and without a message to the exporter.
#pragma once

#include "fd_passing/exporter_id.hpp"

#include <pinfold/error.hpp>

namespace pinfold::fd_passing {

/// Returns whether `via` would reach the exporter now. Errors as `connection::fetch`: `peer_gone`, `not_permitted`,
/// `unsupported` (no way to the exporter), `out_of_resources`. A success proves nothing for later, or about the memory,
/// which may be freed.
[[nodiscard]] result<void> can_fetch(transport via, const exporter_id& of) noexcept;

}  // namespace pinfold::fd_passing
