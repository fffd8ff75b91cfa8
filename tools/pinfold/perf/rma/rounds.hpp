// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Rounds of transfers that use each buffer once, so that every byte of every transfer is verified.
#pragma once

#include "perf/rma/fabric.hpp"
#include "perf/rma/options.hpp"
#include "perf/rma/peers.hpp"
#include "perf/rma/subject.hpp"
#include "perf/rma/window.hpp"

#include <chrono>
#include <optional>
#include <vector>

namespace tool {

/// The parameters of a round.
struct rma_round {
  bool put = true;  ///< else get
  rma_subject& with;
  const std::string& name;  ///< of the subject
  std::size_t count = 0;    ///< transfers, at most one for each buffer
  bool spoil = false;       ///< changes a byte that arrived on this rank
};

/// The result of a round on this rank. `wrong` counts the buffers of this rank with other bytes than those sent.
struct rma_outcome {
  double seconds = 0;
  std::size_t wrong = 0;
};

/// Returns where the bytes begin to differ from those of `seed`; nothing when they do not.
[[nodiscard]] std::optional<std::size_t> first_wrong(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;

/// The rounds of one size. All ranks play the same rounds in the same order. Throws `failure`.
class rma_rounds {
 public:
  /// `window` is this rank's; the constructor asks the next rank for its own.
  rma_rounds(fabric_end& end, rma_peers& peers, const rma_options& options, rma_window& window);

  /// Fills, waits for all ranks, transfers (timed), waits for all, verifies. A buffer has other bytes in every round,
  /// so that missing, misplaced and old bytes are detected.
  [[nodiscard]] rma_outcome play(const rma_round& round);

 private:
  using clock = std::chrono::steady_clock;

  void fill(const rma_round& round);
  [[nodiscard]] std::size_t verify(const rma_round& round);
  void meet(std::chrono::nanoseconds longer);
  [[nodiscard]] double transfer(const rma_round& round);
  [[nodiscard]] bool post(const rma_round& round, std::size_t number);
  void wait(const rma_round& round);
  void report(const rma_round& round, std::size_t number, std::size_t byte) const;

  [[nodiscard]] std::size_t before() const noexcept { return (peers_.rank() + peers_.ranks() - 1) % peers_.ranks(); }
  [[nodiscard]] std::size_t next() const noexcept { return (peers_.rank() + 1) % peers_.ranks(); }

  fabric_end& end_;
  rma_peers& peers_;
  const rma_options& options_;
  rma_window& window_;
  std::vector<fabric_target> targets_;
  std::vector<fabric_transfer> transfers_;
  std::uint64_t generation_ = 0;
  clock::time_point heard_, looked_;  // of the provider; at the peers
  unsigned idle_ = 0;
};

}  // namespace tool
