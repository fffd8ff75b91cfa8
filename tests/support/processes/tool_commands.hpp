// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The tool's subcommands, as its `--help` lists them, so that a test of all of them covers new ones.
#pragma once

#include "support/processes/tool_run.hpp"

#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace pinfold::testing {

/// Returns the words of the subcommands below `group`, which is empty for the tool itself.
inline std::vector<std::string> subcommands_of(const std::string& group) {
  const auto help = run(group + " --help").out;
  std::istringstream lines(help.substr(std::min(help.find("Subcommands:"), help.size())));
  std::vector<std::string> found;
  std::string line;
  std::smatch name;
  for (std::getline(lines, line); std::getline(lines, line) && !line.empty();)
    if (std::regex_search(line, name, std::regex("^  ([a-z-]+)"))) found.push_back(group + name.str(1));
  return found;
}

/// Returns the words of all commands, for example `info` and `perf hit`: `groups` are those with subcommands.
inline std::vector<std::string> all_commands(bool groups) {
  std::vector<std::string> all;
  for (const auto& one : subcommands_of("")) {
    const auto below = subcommands_of(one + " ");
    if (below.empty() != groups) all.push_back(one);
    if (!groups) all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

/// Returns a short piece of work of the command; just its name for one that is not known here. `folder` is for files.
inline std::string short_work(const std::string& command, const std::string& folder) {
  const std::map<std::string, std::string> arguments{
      {"demo", ""},
      {"top", "--once"},
      {"run", "--for ucx -- true"},
      {"trace", "-o " + folder + "/trace -- true"},
      {"replay", "--synthetic loop --budget 10%"},
      {"monitord", "--socket " + folder + "/socket"},
      {"perf import", "--sizes 4K --iterations 10 --repeats 1"},
      {"perf register", "--sizes 64K --iterations 10 --repeats 1"},
      {"perf io", "--sizes 4K --file-size 1M --iterations 10 --repeats 1 --dir " + folder},
      {"perf hit", "--regions 10 --seconds 10ms --repeats 1"},
      {"perf miss", "--regions 10 --repeats 1 --refill"},
      {"perf scale", "--regions 10 --seconds 10ms --repeats 1"},
      {"perf memory", "--regions 10 --repeats 1"},
      {"perf evict", "--regions 10 --seconds 10ms --repeats 1"},
      {"perf batch", "--regions 10 --repeats 1"},
      {"perf monitor", "--regions 10 --many 10 --seconds 1ms --repeats 1"},
      {"perf startup", "--size 1G --time-limit 0.1"}};
  const auto known = arguments.find(command);
  return known == arguments.end() ? command : command + " " + known->second;
}

/// Returns work of the command that takes longer than a test waits, where there is any.
inline std::string long_work(const std::string& command, const std::string& folder) {
  const std::map<std::string, std::string> arguments{{"run", "--for ucx -- sleep 60"},
                                                     {"trace", "-o " + folder + "/trace -- sleep 60"},
                                                     {"replay", "--synthetic all"},
                                                     {"monitord", "--socket " + folder + "/socket"},
                                                     {"perf io", "--seconds 60 --dir " + folder}};
  const auto known = arguments.find(command);
  return known == arguments.end() ? command : command + " " + known->second;
}

}  // namespace pinfold::testing
