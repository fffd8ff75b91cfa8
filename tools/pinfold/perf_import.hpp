// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the cases of `pinfold perf import` share.
#pragma once

#include "message.hpp"
#include "peer_process.hpp"
#include "perf.hpp"

#include <pinfold/options.hpp>
#include <pinfold/registrars/memfd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// What `--cuda` has of its own.
struct cuda_options {
  bool chosen = false;
  int device = 0;
  std::string to = "device";            ///< where messages are copied to: or "host"
  std::string memory;                   ///< "allocations" or "segments"; empty: each case's own choice
  std::vector<unsigned> held{64, 256};  ///< how many others are open, for the open case
  std::size_t allocations = 1500;       ///< of the weight-sync case
  std::size_t requests = 19'500;        ///< of the weight-sync case
};

/// What the command line asked for. What is not given, each case chooses for itself.
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

/// The cache's options as people read them.
[[nodiscard]] std::string cache_line(const pinfold::cache_options& cache);

/// Peers and options of one run.
struct import_run {
  const import_options& options;
  std::vector<peer_process>& peers;

  [[nodiscard]] pinfold::memfd_importer importer() const { return pinfold::memfd_importer({.via = options.via}); }

  /// `count` messages of `bytes` bytes, spread over the peers. Throws `failure`.
  [[nodiscard]] std::vector<message> provide(std::size_t count, std::size_t bytes) const;

  /// Frees what `provide` gave. Throws `failure`.
  void take_back(std::size_t count) const;

  /// A row with the parameters that all cases have.
  [[nodiscard]] json row(const char* subject, std::size_t size, unsigned threads) const;
};

// The cases. Each returns its rows and throws `failure` when it cannot even start.
[[nodiscard]] json run_copy(const import_run& run);
[[nodiscard]] json run_parallel_opens(const import_run& run);
[[nodiscard]] json run_hit_during_open(const import_run& run);

/// `--cuda`: all of it, but for what the command line has to say. `sizes` is empty for the case's own.
[[nodiscard]] int measure_cuda(import_options& options, const std::string& sizes, bool as_json);

/// The columns that people see of each case.
[[nodiscard]] std::vector<column> copy_columns();
[[nodiscard]] std::vector<column> parallel_opens_columns();
[[nodiscard]] std::vector<column> hit_during_open_columns();

}  // namespace tool
