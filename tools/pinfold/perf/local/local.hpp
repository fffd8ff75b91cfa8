// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of `pinfold perf register` and `pinfold perf io`.
#pragma once

#include "perf/local/paged_memory.hpp"
#include "perf/perf.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tool {

inline constexpr std::size_t largest_io = std::size_t{1} << 30;  ///< the largest buffer of io_uring

/// Records in the row why there are no figures: skipped where the machine's limits do not allow it, else an error.
void add_failure(json& row, const pinfold::error& why);

/// Adds `--pages`, `--slots`, `--dir`. Without `--slots` there are `slots_for` that many registrations, so that nothing
/// is evicted during another measurement.
void add_pages(CLI::App& command, std::optional<pinfold::page_kind>& into);
void add_slots(CLI::App& command, std::optional<unsigned>& into);
void add_directory(CLI::App& command, std::string& into);

[[nodiscard]] unsigned slots_for(std::size_t registrations) noexcept;

/// Throws `usage_failure` when the value of option `what` is not a multiple of 4 KiB, or above `most`. I/O past the
/// page cache needs that, and neighbours that must not share a page.
void check_block(const char* what, std::size_t size, std::size_t most = SIZE_MAX);

/// Returns how the file is accessed, as words of a heading.
[[nodiscard]] const char* direct_text(bool direct) noexcept;

}  // namespace tool
