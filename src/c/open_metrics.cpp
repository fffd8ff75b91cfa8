// SPDX-License-Identifier: BSD-3-Clause
#include "c/failure.hpp"
#include "c/text.hpp"

#include <pinfold/observation/open_metrics.hpp>
#include <pinfold/pinfold.h>

#include <string>

extern "C" size_t pinfold_open_metrics(char* text, size_t room) {
  using namespace pinfold;
  std::string whole;
  const int code = c::guarded([&]() -> result<void> {
    auto made = observation::open_metrics_here();
    if (!made) return tl::unexpected(made.error());
    whole = *std::move(made);
    return {};
  });
  return code == PINFOLD_OK ? c::copy_text(whole, text, room) : 0;
}
