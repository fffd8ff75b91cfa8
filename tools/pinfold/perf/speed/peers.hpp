// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Other registration caches, measured by programs of their own: they patch the C library, and must not patch ours.
#pragma once

#include "cli/command_line.hpp"
#include "cli/report.hpp"

#include "bench/parameters.hpp"

#include <string>
#include <vector>

namespace tool {

/// The results of the peers' programs.
struct peer_results {
  json rows = json::array();
  std::vector<std::string> notes;     ///< about peers that were not built
  std::vector<std::string> failures;  ///< about peers that ended badly

  /// Prints the failures. Returns the exit status: `status`, or 1 where there is a failure.
  [[nodiscard]] int conclude(int status) const;
};

/// The comparison as the user asked for it.
class peer_comparison {
 public:
  explicit peer_comparison(unsigned limit_s) noexcept : limit_s_(limit_s) {}

  /// Adds `--peers`, `--peers-dir`, `--adapters` and `--peer-limit`. This object must live until the command line is
  /// parsed.
  void add_to(CLI::App& command);

  /// Runs each program that exists, one after the other, if the user asked for it. Looks for them in the user's
  /// directory only or, if there is none, beside this program and in `../libexec/pinfold`. Ends a program that takes
  /// longer than the limit.
  [[nodiscard]] peer_results measure(const bench::parameters& how) const;

 private:
  bool wanted_ = false;
  bool adapters_ = false;
  std::string directory_;
  unsigned limit_s_;
};

}  // namespace tool
