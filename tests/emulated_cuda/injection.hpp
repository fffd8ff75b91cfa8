// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Failures, delays and counts of each entry point, by name with or without version. Thread-safe.
#pragma once

#include "settings.hpp"

namespace emulated_cuda {

std::uint64_t calls_of(std::string_view name) noexcept;
bool set_failure(std::string_view name, std::uint64_t nth, status code, bool forever) noexcept;
bool set_delay(std::string_view name, unsigned microseconds) noexcept;

/// Removes all failures and delays, and zeroes all counts.
void forget_injection() noexcept;
void set_injection_of_environment() noexcept;

}  // namespace emulated_cuda
