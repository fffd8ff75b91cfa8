// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Rounds of transfers in which each buffer is used once, so that every byte of every transfer is verified.
#pragma once

#include "fabric.hpp"
#include "options.hpp"
#include "peers.hpp"
#include "subject.hpp"
#include "window.hpp"

#include <chrono>
#include <optional>
#include <vector>

namespace tool {

/// What a round is.
struct rma_round {
  bool put = true;  ///< else get
  rma_subject& with;
  const std::string& name;  ///< of the subject
  std::size_t count = 0;    ///< transfers, at most one a buffer
  bool spoil = false;       ///< changes a byte that arrived here
};

/// What came of it on this rank. `wrong` buffers are those here that do not hold what was sent.
struct rma_outcome {
  double seconds = 0;
  std::size_t wrong = 0;
};

/// Where bytes begin to be other than those of `seed`; nothing when they are not.
[[nodiscard]] std::optional<std::size_t> first_wrong(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;

/// Of one size. All ranks play the same rounds in the same order. Throws `failure`.
class rma_rounds {
 public:
  /// `window`: this rank's; the next rank's is found by asking.
  rma_rounds(fabric_end& end, rma_peers& peers, const rma_options& options, rma_window& window);

  /// Fills, waits for all, transfers (which is timed), waits for all, verifies. A buffer has other bytes in every
  /// round, so that what did not arrive, or went astray, or is of old, is seen.
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
