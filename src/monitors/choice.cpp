// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/choice.hpp"

namespace pinfold::monitors {

chosen choose(monitor_choice wanted) {
  if (wanted == monitor_choice::explicit_) return {true, nullptr, {}};
  return {false, nullptr, "no monitor"};
}

}  // namespace pinfold::monitors
