// SPDX-License-Identifier: BSD-3-Clause
// Takes the place of live.cpp in a build without ncurses.
#include "cli/failure.hpp"
#include "top/live.hpp"

namespace tool::top {

int show_live(sampler& /*from*/, const live_options& /*options*/) {
  throw failure("this build has no table on a terminal, as ncurses was missing; --once prints one table");
}

}  // namespace tool::top
