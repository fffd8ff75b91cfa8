// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The value of a limit that limits nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfold {

/// For every limit of bytes or of a count: `cache_options::max_bytes`, `pool_options::max_bytes`,
/// `registrar_limits::max_bytes`. Settings and the tool read and print it as `unlimited`.
inline constexpr std::size_t unlimited = SIZE_MAX;

}  // namespace pinfold
