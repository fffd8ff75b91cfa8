// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lines of traces for tests.
#pragma once

#include <cstdint>
#include <random>
#include <sstream>
#include <string>

namespace pinfold::testing {

inline constexpr std::uint64_t trace_page = 4096;

/// Returns the line of a request of the cache 1.1 for whole pages, which are registered as they are.
inline std::string request_line(std::uint64_t page, std::uint64_t pages, const std::string& outcome) {
  std::ostringstream line;
  line << "1.1 0 0x" << std::hex << page * trace_page << std::dec << ' ' << pages * trace_page << " 0x" << std::hex
       << page * trace_page << std::dec << ' ' << pages * trace_page << ' ' << outcome << '\n';
  return line.str();
}

/// Returns a trace without its first line: random requests for 64 registrations of 1 to 4 pages, some of them misses.
inline std::string random_trace(std::uint64_t seed, int requests) {
  constexpr std::uint64_t registrations = 64;
  constexpr std::uint64_t apart = 16;
  std::mt19937_64 chance(seed);
  std::string lines = "cache 1.1 random\n";
  std::uint64_t opened = 0;
  for (int i = 0; i < requests; ++i) {
    const auto one = std::min(chance() % registrations, chance() % registrations);
    const bool hit = (opened >> one & 1U) != 0 && chance() % 4 != 0;
    opened |= std::uint64_t{1} << one;
    lines += request_line(apart * (one + 1), one % 4 + 1, hit ? "hit" : std::to_string(500 + chance() % 1000));
  }
  return lines;
}

}  // namespace pinfold::testing
