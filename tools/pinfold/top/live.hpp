// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// `pinfold top` on a terminal.
#pragma once

#include "top/sample.hpp"
#include "top/selection.hpp"

#include <chrono>
#include <string>

namespace tool::top {

/// What the live table begins with.
struct live_options {
  std::chrono::milliseconds interval{1000};
  std::string order;
  wanted what;
};

/// Shows the table until the user or a signal ends it; then the terminal is as it was. Returns the signal, 0 for the
/// user. Throws `failure` where the terminal cannot be used.
[[nodiscard]] int show_live(sampler& from, const live_options& options);

}  // namespace tool::top
