// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The arguments that `replay` and `report` share: the trace, the costs and the budget.
#pragma once

#include "trace/replay/cost_model.hpp"
#include "trace/replay/recorded.hpp"
#include "trace/replay/workload.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tool {

/// Returns the model of that name; null, which stands for the recorded costs, if there is none.
[[nodiscard]] const cost_model* costs_named(const std::string& name);

/// Returns what a trace says of each cache beside its requests, in the order of the caches. Throws `failure`.
[[nodiscard]] std::vector<recorded_notes> read_notes(const std::string& path);

/// Returns how many acquires failed, by reason, as `3 over_budget`; empty if none did.
[[nodiscard]] std::string failures_text(const std::vector<recorded_notes>& of);

/// A trace by cache.
struct recorded_file {
  std::vector<recorded_cache> caches;  ///< those with requests
  std::vector<recorded_notes> notes;   ///< by `recorded_cache::number`, up to the last cache with a request or a note
  std::uint64_t cut_lines = 0;         ///< of killed processes; skipped
};

/// Reads a trace that has at least one request, once: it may be a pipe. Tells on standard error of lines that were
/// skipped. Throws `usage_failure` with the place of an
/// error.
[[nodiscard]] recorded_file read_recorded(const std::string& path, const cost_model* costs);

/// The budget of a replayed cache.
struct replay_budget {
  std::string text;         ///< as shown
  bool in_entries = false;  ///< else in bytes
  std::size_t room = 0;
};

/// Parses `25%` of the workload's footprint; `64M`; or a plain number of registrations. Throws `usage_failure`.
[[nodiscard]] replay_budget parse_budget(const std::string& text, const workload& of);

}  // namespace tool
