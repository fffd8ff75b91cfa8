// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Options of the cache as the user gave them: on the command line, else in the environment, else the defaults.
#pragma once

#include "cli/command_line.hpp"

#include <pinfold/importers/memfd.hpp>
#include <pinfold/options.hpp>

#include <optional>
#include <string>
#include <vector>

namespace tool {

/// Returns the options. Throws `usage_failure` when a variable or the settings file is wrong.
[[nodiscard]] pinfold::cache_options options_of_environment();

/// Throws `usage_failure` where `options_of_environment` does: for commands whose caches have options of their own.
void check_environment();

/// Returns the monitors that PINFOLD_MONITOR would choose by this word. Throws `usage_failure`, which names
/// `--monitors`.
[[nodiscard]] pinfold::monitor_choice monitors_named(const std::string& word);

/// The flags `--retain`, `--no-retain`, `--max-bytes`, `--max-count`, `--when-full`.
class cache_flags {
 public:
  /// Adds the flags. This object must stay at the same place until the command line is parsed.
  void add_to(CLI::App& command);

  /// Returns the environment's options, changed by the given flags. Throws `usage_failure`.
  [[nodiscard]] pinfold::cache_options resolve() const;

 private:
  std::optional<bool> retain_;
  std::optional<std::string> max_bytes_;
  std::optional<std::string> max_count_;
  std::optional<std::string> when_full_;
};

/// Adds `--via`, one of `names`: how the memfd importer fetches descriptors.
void add_via(CLI::App& command, pinfold::memfd_via& into, const std::vector<std::string>& names);

/// Returns the name of the choice, as on the command line.
[[nodiscard]] const char* name_of(pinfold::when_full choice) noexcept;
[[nodiscard]] const char* name_of(pinfold::memfd_via choice) noexcept;

}  // namespace tool
