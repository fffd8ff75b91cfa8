// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The main program of each peer. Its one argument is the parameters as JSON, and it prints the rows as JSON.
#pragma once

#include "bench/cases.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <unistd.h>

namespace bench {

/// Redirects standard output to standard error before any code of the peer runs. Returns the stream for the rows.
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
