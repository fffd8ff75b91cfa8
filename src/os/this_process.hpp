// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Distinguishes a process from its children.
#pragma once

#include <pinfold/export.hpp>

#include <cstdint>

namespace pinfold::os {

/// Returns a number that differs between a process and its children. Their PIDs may be equal: process 1 of a PID
/// namespace can make process 1 of another one. Exported for the registrars in libraries of their own.
[[nodiscard]] PINFOLD_EXPORT std::uint64_t this_process() noexcept;

}  // namespace pinfold::os
