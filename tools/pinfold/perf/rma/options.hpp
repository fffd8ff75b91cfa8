// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The options of `pinfold perf rma`.
#pragma once

#include "cli/command_line.hpp"

#include <pinfold/options.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace tool {

struct rma_options {
  std::string provider = "tcp;ofi_rxm";
  std::string address;  ///< the host's address to use; empty: chosen automatically
  std::vector<std::size_t> sizes;
  std::vector<std::string> operations{"put", "get"};
  std::vector<std::string> subjects{"per-transfer", "pinfold", "pool"};
  std::size_t buffers = 32;
  std::size_t depth = 16;
  std::size_t iterations = 1000;
  double timeout = 30;  ///< seconds
  bool remap = false;
  std::string spoil;  ///< byte, key, or empty
  bool as_json = false;
  pinfold::cache_options cache;

  // How the ranks meet: through MPI, over a socket, or by being forked.
  bool mpi = false;
  bool listen = false;
  std::string host;
  std::size_t ranks = 2;
  unsigned port = 18515;
  double wait = 600;  ///< seconds

  [[nodiscard]] std::chrono::nanoseconds time_limit() const;

  /// Returns the options that all ranks must agree on, as text.
  [[nodiscard]] std::string agreement() const;
};

/// Reads the command line. Returns nothing when it only asked for help, which was printed. Throws `usage_failure`.
[[nodiscard]] std::optional<rma_options> rma_options_from(int argc, char** argv);

class rma_peers;

/// The whole of `pinfold perf rma`, once the ranks have met. Returns the exit status. Throws `failure` or
/// `usage_failure`.
[[nodiscard]] int run_rma(rma_peers& peers, const rma_options& options);

}  // namespace tool
