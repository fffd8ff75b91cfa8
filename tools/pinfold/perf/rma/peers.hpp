// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ranks of a run, and their messages besides the transfers.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

struct rma_options;

/// A message of each rank, by rank.
using per_rank = std::vector<std::string>;

/// One rank's view of all ranks. For one thread. Members marked so throw `failure` when a rank is gone, or reported a
/// failure.
class rma_peers {
 public:
  rma_peers() = default;
  rma_peers(const rma_peers&) = delete;
  rma_peers& operator=(const rma_peers&) = delete;
  virtual ~rma_peers() = default;

  [[nodiscard]] virtual std::size_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::size_t ranks() const noexcept = 0;

  /// Returns this host's address on the way to the other ranks; empty when that is not known.
  [[nodiscard]] virtual std::string address() const { return {}; }

  /// Returns whether this rank prints the results.
  [[nodiscard]] virtual bool reports() const noexcept { return rank() == 0; }

  /// Sends `own` to all ranks and returns the messages of all. Calls `meanwhile` again and again, since other ranks may
  /// need this rank's progress to get there. Throws, also when `timeout` is over.
  [[nodiscard]] per_rank all_gather(std::string own, std::chrono::nanoseconds time_limit,
                                    const std::function<void()>& meanwhile);

  /// Throws when a rank is known to be gone. Does not wait.
  virtual void look() {}

  /// Tells the other ranks, as far as possible without waiting, that this rank ends with a failure.
  virtual void give_up(std::string_view why) noexcept = 0;

 private:
  virtual void begin(std::string own) = 0;
  [[nodiscard]] virtual bool complete() = 0;
  [[nodiscard]] virtual per_rank take() = 0;
  [[nodiscard]] virtual std::string missing() const = 0;  ///< the ranks that it waits for, in words
};

/// Meets the other ranks in the way that the options say. Throws `failure`.
[[nodiscard]] std::unique_ptr<rma_peers> meet_peers(const rma_options& options);

// The ways to meet. Forked and listening ranks meet at rank 0.
[[nodiscard]] std::unique_ptr<rma_peers> fork_peers(const rma_options& options);
[[nodiscard]] std::unique_ptr<rma_peers> listen_for_peers(const rma_options& options);
[[nodiscard]] std::unique_ptr<rma_peers> connect_to_peers(const rma_options& options);
[[nodiscard]] std::unique_ptr<rma_peers> mpi_peers();  ///< the function that differs between the two programs

}  // namespace tool
