// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The main program of each peer: its one argument says as JSON what to measure, and it prints the rows, as JSON too.
#pragma once

#include "bench/cases.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <unistd.h>

namespace bench {

/// Runs before anything of the peer does: what that prints on standard output goes to standard error. Returns where the
/// rows go.
[[nodiscard]] inline std::FILE* divert_output() {
  const int rows = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  return ::fdopen(rows, "w");
}

template <subject Subject>
int peer_main(int argc, char** argv) {
  auto* const output = divert_output();
  try {
    if (argc != 2) throw std::invalid_argument("is run by pinfold perf --peers, with one argument");
    const auto text = measure<Subject>(parameters_from(json::parse(argv[1]))).dump();
    std::fprintf(output, "%s\n", text.c_str());
    return std::fclose(output) == 0 ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", argv[0], problem.what());
    return 1;
  }
}

}  // namespace bench
