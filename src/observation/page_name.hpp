// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The names of pages' files: PID.START_TIME.NAMESPACE.COPY. Containers that share the folder may have processes with
/// equal PIDs that started in the same tick, and a process may have several copies of the library.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace pinfold::observation {

/// The suffix of the name of a page that has no header yet.
inline constexpr std::string_view unfinished = ".new";

/// Returns the first number of a text that consists of numbers with these characters between them; nothing for any
/// other text.
[[nodiscard]] inline std::optional<std::uint64_t> first_of_numbers(std::string_view text,
                                                                   std::string_view between) noexcept {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i <= between.size(); ++i) {
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    const bool last = i == between.size();
    if (error != std::errc{} || (last ? !text.empty() : !text.starts_with(between[i]))) return std::nullopt;
    if (!last) text.remove_prefix(1);
    if (i == 0) first = number;
  }
  return first;
}

/// Returns whether the library gives this name to a page while it makes or replaces it. Other files must not be
/// touched, because a user may have the folder for other things.
[[nodiscard]] inline bool is_unfinished(std::string_view name) noexcept {
  if (!name.ends_with(unfinished)) return false;
  while (name.ends_with(unfinished)) name.remove_suffix(unfinished.size());
  return first_of_numbers(name, "...-").has_value();
}

}  // namespace pinfold::observation
