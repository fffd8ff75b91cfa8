// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of the cases of `pinfold perf import`.
#pragma once

#include "peer/message.hpp"
#include "peer/peer_process.hpp"
#include "perf/perf.hpp"

#include <pinfold/importers/memfd.hpp>
#include <pinfold/options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// The options of `--cuda` alone.
struct cuda_options {
  bool chosen = false;
  int device = 0;
  std::string to = "device";            ///< the destination of copies: "device" or "host"
  std::string memory;                   ///< "allocations" or "segments"; empty: each case's own choice
  std::vector<unsigned> held{64, 256};  ///< numbers of other open messages, for the open case
  std::size_t allocations = 1500;       ///< of the weight-sync case
  std::size_t requests = 19'500;        ///< of the weight-sync case
};

/// The options on the command line. Each case chooses its own defaults.
struct import_options : measuring {
  std::string case_name = "copy";
  std::vector<std::size_t> sizes;
  pinfold::memfd_via via = pinfold::memfd_via::pidfd;
  std::size_t peers = 2;
  std::size_t buffers = 4;  ///< for each peer
  std::optional<unsigned> threads;
  unsigned opens = 24;
  std::optional<unsigned> open_ms;
  std::string pin_peer = "none";
  pinfold::cache_options cache;
  cuda_options cuda;
};

/// Returns the cache's options in words.
[[nodiscard]] std::string cache_line(const pinfold::cache_options& cache);

/// The peers and options of one run.
struct import_run {
  const import_options& options;
  std::vector<peer_process>& peers;

  [[nodiscard]] pinfold::memfd_importer importer() const { return pinfold::memfd_importer({.via = options.via}); }

  /// Returns `count` messages of `bytes` bytes, spread over the peers. Throws `failure`.
  [[nodiscard]] std::vector<message> provide(std::size_t count, std::size_t bytes) const;

  /// Frees the messages that `provide` returned. Throws `failure`.
  void take_back(std::size_t count) const;

  /// Returns a row with the parameters that all cases have.
  [[nodiscard]] json row(const char* subject, std::size_t size, unsigned threads) const;
};

// The cases.
extern const perf_case<import_run> copy_case, parallel_opens_case, hit_during_open_case;

/// Runs `--cuda`. `sizes` is empty for the case's own sizes.
[[nodiscard]] int measure_cuda(import_options& options, const std::string& sizes, bool as_json);

/// The columns of the copy case, with GPU memory and without.
[[nodiscard]] std::vector<column> copy_columns();

}  // namespace tool
