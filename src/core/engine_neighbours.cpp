// SPDX-License-Identifier: BSD-3-Clause
#include "core/neighbours.hpp"

#include "core/engine.hpp"

#include <string_view>

namespace pinfold::core {

// An engine in the list has a cache, so that `begin` may keep its memory.
bool neighbour::close_idle(const char* driver, const range& where, const detail::engine* asking) noexcept {
  using detail::background_use;
  const auto suits = [&](const neighbour& one) {
    return &one.mine_ != asking && std::string_view(one.mine_.driver_name()) == driver;
  };
  bool any = false;
  for (std::uint64_t last = 0;;) {
    background_use use;
    const auto keep = [&](neighbour& one) {
      if (auto begun = background_use::begin(&one.mine_)) use = std::move(*begun);
    };
    if (!os::process_list<neighbour>::here().next(last, suits, keep)) return any;
    const background_use::call now(use);
    if (now.on() != nullptr && now.on()->close_idle(where)) any = true;
  }
}

}  // namespace pinfold::core
