// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The results of `pinfold perf rma`.
#pragma once

#include "cli/report.hpp"
#include "perf/rma/options.hpp"
#include "perf/rma/peers.hpp"
#include "perf/rma/rounds.hpp"

namespace tool {

/// One row's measurements on one rank. The first round is verified and not timed.
struct rma_tally {
  std::size_t transfers = 0, wrong = 0;  ///< of all rounds
  std::size_t timed = 0;                 ///< transfers
  double seconds = 0;
  double best = 0;  ///< transfers a second, of the best round

  void add(const rma_round& round, const rma_outcome& came, bool warm_up);
};

/// Returns a rank's measurements of a row, for the other ranks.
[[nodiscard]] json as_json(const rma_tally& tally);

/// Returns the row of all ranks. Rates are averages over the ranks, each counting its own transfers; the peak is the
/// best round of any. MB are 2^20 bytes, as in perftest.
[[nodiscard]] json rma_row(const json& what, const std::vector<json>& tallies);

/// Adds how many times faster than `per-transfer` each row is.
void add_rma_gains(json& rows);

[[nodiscard]] std::vector<column> rma_columns();

/// Returns `verified N of N`.
[[nodiscard]] std::string rma_summary(const json& rows);

}  // namespace tool
