// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Statistics pages as text for Prometheus, and for all that read OpenMetrics. `docs/operate/metrics.md` lists the
/// names.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/observation/reader.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace pinfold::observation {

/// The two forms of the text, which have the same samples.
enum class metrics_format : std::uint8_t {
  open_metrics,  ///< OpenMetrics 1.0
  prometheus     ///< Prometheus's text format 0.0.4, which node-exporter's textfile collector and promtool read
};

/// Returns the media type of a format, as an HTTP server states it.
[[nodiscard]] PINFOLD_EXPORT const char* media_type_of(metrics_format as) noexcept;

/// Returns the samples of processes and of their caches: counters, gauges and histograms with times in seconds and
/// sizes in bytes. A histogram without values is left out. Of a process that ended it writes only the state, so that
/// its series end. No two samples have the same name and labels, whatever the snapshots say. `unreadable` is the number
/// of pages that the caller found and could not read. Thread-safe. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT std::string open_metrics(std::span<const process_snapshot> of,
                                                      metrics_format as = metrics_format::open_metrics,
                                                      std::uint64_t unreadable = 0);

/// Returns the samples of this process, from the page that this copy of the library writes: they are as old as the last
/// publication, at most about 0.1 s. Thread-safe. Errors: `invalid_handle` when no cache of the process publishes its
/// statistics, with ENOENT; those of `read_page`. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<std::string> open_metrics_here(metrics_format as = metrics_format::open_metrics);

}  // namespace pinfold::observation
