// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// PINFOLD_FUZZ_ONLY: names, joined with commas, of the events, mechanisms, kinds of memory and activities that a run
/// is limited to. If no name of a group is given, the whole group is allowed. It narrows down findings.
#pragma once

#include "vocabulary.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

/// The activity of a thread for a while.
enum class activity : std::uint8_t { fast, slots, program, disturb };
inline constexpr std::array activity_names{"fast", "slots", "program", "disturb"};

class filter {
 public:
  filter() : filter(std::getenv("PINFOLD_FUZZ_ONLY")) {}

  [[nodiscard]] bool allows(memory_event what) const { return is_in(events_, static_cast<std::size_t>(what)); }
  [[nodiscard]] bool allows(mechanism via) const { return is_in(mechanisms_, static_cast<std::size_t>(via)); }
  [[nodiscard]] bool allows(memory_kind of) const { return is_in(kinds_, static_cast<std::size_t>(of)); }
  [[nodiscard]] bool allows(activity what) const { return is_in(activities_, static_cast<std::size_t>(what)); }

 private:
  /// Throws `std::runtime_error` for an unknown name.
  explicit filter(const char* text) {
    std::string_view rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const auto name = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      const bool known = add(name, event_names, events_) || add(name, mechanism_names, mechanisms_) ||
                         add(name, kind_names, kinds_) || add(name, activity_names, activities_);
      if (!known) throw std::runtime_error("PINFOLD_FUZZ_ONLY: there is no " + std::string(name));
    }
  }

  using set = std::vector<std::size_t>;
  static bool is_in(const set& all, std::size_t one) {
    return all.empty() || std::find(all.begin(), all.end(), one) != all.end();
  }
  static bool add(std::string_view name, std::span<const char* const> names, set& to) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (name != names[i]) continue;
      to.push_back(i);
      return true;
    }
    return false;
  }

  set events_, mechanisms_, kinds_, activities_;
};

}  // namespace pinfold::testing::hazard_fuzz
