// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The clients that `pinfold run` knows: which file is the adapter of each, and how the client is told to load it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tool {

/// A variable of the environment that makes a client load its adapter.
struct client_variable {
  enum position { first, second };

  std::string name;
  std::string value;       ///< empty: the variable is unset
  std::string standard;    ///< what the client uses where the variable is not set, for variables that are lists
  char separator = 0;      ///< of a list; 0: the variable has one value
  position where = first;  ///< which part of the list the value becomes
};

/// Returns the names of all clients.
[[nodiscard]] std::vector<std::string> client_names();

/// Returns the client's adapter, from where the build or the installation puts it: in folders beside that of the tool,
/// `tool_folder`. Throws `failure` if it is not there.
[[nodiscard]] std::filesystem::path adapter_for(const std::string& client, const std::filesystem::path& tool_folder);

/// Returns what makes the client load the adapter.
[[nodiscard]] std::vector<client_variable> variables_for(const std::string& client,
                                                         const std::filesystem::path& adapter);

/// Returns why a variable cannot hold the adapter's path, which contains a character that separates the parts of the
/// variable; empty: it can.
[[nodiscard]] std::string why_not_nameable(const std::string& client, const std::filesystem::path& adapter);

}  // namespace tool
