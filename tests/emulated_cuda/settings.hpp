// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Settings from the environment; see control.hpp for their meaning.
#pragma once

#include "control.hpp"
#include "cuda/api.hpp"

#include <string_view>

namespace emulated_cuda {

using namespace pinfold::cuda;

inline constexpr unsigned most_devices = 4;

struct settings {
  unsigned devices = 1;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  bool peers = true;
  status freed = status::success;  ///< opens what lies there
  status dead = status::invalid_handle;

  second_open rule = second_open::counted;
  std::uint64_t max_mappings = no_limit;
  unsigned stream_delay = 0;
};

settings settings_of_environment();

/// Calls `use` with each `name=value` of a comma-separated list.
template <class Use>
void for_each_setting(std::string_view list, Use use) {
  while (!list.empty()) {
    const auto item = list.substr(0, list.find(','));
    list.remove_prefix(item.size() == list.size() ? item.size() : item.size() + 1);
    const auto equals = item.find('=');
    if (equals != std::string_view::npos) use(item.substr(0, equals), item.substr(equals + 1));
  }
}

/// Returns the number that the text begins with, or 0.
std::uint64_t number_in(std::string_view text) noexcept;

/// Returns the variable's value; empty where it is not set.
std::string_view variable(const char* name) noexcept;

}  // namespace emulated_cuda
