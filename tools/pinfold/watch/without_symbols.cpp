// SPDX-License-Identifier: BSD-3-Clause
// Built where libdw is missing.
#include "watch/symbols.hpp"

#include <fmt/format.h>

namespace tool::watch {

struct symbols::state {};

symbols::symbols(pid_t) {}
symbols::~symbols() = default;

std::vector<std::string> symbols::name(const std::vector<std::uint64_t>& return_addresses) {
  std::vector<std::string> all;
  for (const auto one : return_addresses) all.push_back(fmt::format("{:#x}", one));
  return all;
}

}  // namespace tool::watch
