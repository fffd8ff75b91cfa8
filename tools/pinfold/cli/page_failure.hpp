// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The failures on a statistics page as text.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/observation/layout.hpp>

namespace tool {

/// Returns the failure as the error that it was. Valid as long as `from`.
[[nodiscard]] inline pinfold::error error_of(const pinfold::observation::error_record& from) {
  return {static_cast<pinfold::errc>(from.code), static_cast<pinfold::native_kind>(from.native_kind), from.native,
          from.message.data()};
}

}  // namespace tool
