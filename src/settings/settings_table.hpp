// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The table of all settings, which drives reading and writing. Internal.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/options.hpp>

#include <span>
#include <string>
#include <string_view>

namespace pinfold::detail {

/// One option in text form.
struct setting {
  std::string_view name;     ///< of the environment variable
  std::string_view comment;  ///< one line: meaning, unit, accepted values
  result<void> (*assign)(cache_options& into, std::string_view value) noexcept;  ///< changes nothing on error
  std::string (*print)(const cache_options& from);                               ///< a text that `assign` accepts
};

/// Returns all settings, in the order in which they are shown.
[[nodiscard]] std::span<const setting> all_settings() noexcept;

/// Returns the setting of that name; null if there is none.
[[nodiscard]] const setting* find_setting(std::string_view name) noexcept;

}  // namespace pinfold::detail
