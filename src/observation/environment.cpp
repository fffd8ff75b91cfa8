// SPDX-License-Identifier: BSD-3-Clause
#include "observation/environment.hpp"

#include "os/size_limit.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace pinfold::observation {

bool wanted_by_environment() noexcept {
  static std::atomic<bool> printed{false};
  const char* const found = ::secure_getenv("PINFOLD_STATS");
  if (found == nullptr) return false;
  const std::string_view value(found);
  static constexpr std::array<std::string_view, 4> yes{"on", "1", "true", "yes"};
  static constexpr std::array<std::string_view, 5> no{"off", "0", "false", "no", ""};
  if (std::find(yes.begin(), yes.end(), value) != yes.end()) return true;
  const bool known = std::find(no.begin(), no.end(), value) != no.end();
  if (!known && !printed.exchange(true, std::memory_order_seq_cst))
    os::to_the_program([&] {
      return std::fprintf(stderr, "pinfold: PINFOLD_STATS=%s: expected on or off; nothing is published\n", found);
    });
  return false;
}

}  // namespace pinfold::observation
