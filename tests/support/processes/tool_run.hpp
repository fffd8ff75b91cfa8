// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs the built tool as a user does. PINFOLD_TOOL is its path, unless PINFOLD_TEST_TOOL names another.
#pragma once

#include "support/host/built_file.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace pinfold::testing {

using json = nlohmann::json;

/// The outcome of a run of the tool.
struct outcome {
  int status = -1;
  std::string out;
  std::string complaints;
};

inline std::string contents_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Returns the path of the tool under test.
inline std::string tool() { return built_file("PINFOLD_TEST_TOOL", PINFOLD_TOOL); }

/// Runs the tool. `settings` are assignments of environment variables, as in a shell.
inline outcome run(const std::string& arguments, const std::string& settings = "") {
  const auto complaints = ::testing::TempDir() + "pinfold_cli_stderr_" + std::to_string(getpid());
  const auto command = settings + " '" + tool() + "' " + arguments + " 2>'" + complaints + "'";
  outcome seen;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return seen;
  std::array<char, 4096> buffer{};
  for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    seen.out.append(buffer.data(), got);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) seen.status = WEXITSTATUS(status);
  seen.complaints = contents_of(complaints);
  std::remove(complaints.c_str());
  return seen;
}

/// Returns the rows that the tool printed with `--json`. Expects the run to have succeeded.
inline json rows_of(const outcome& seen) {
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  const auto parsed = json::parse(seen.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << seen.out;
  EXPECT_TRUE(parsed.contains("host"));
  EXPECT_GT(parsed.at("host").at("cpus"), 0);
  return parsed.at("rows");
}

/// Expects wrong usage to be explained with `word`, and nothing else to happen.
inline void expect_refused(const std::string& arguments, const std::string& word) {
  const auto seen = run(arguments);
  EXPECT_EQ(seen.status, 2) << arguments;
  EXPECT_NE(seen.complaints.find(word), std::string::npos) << arguments << ": " << seen.complaints;
  EXPECT_EQ(seen.out, "") << arguments;
}

/// Expects that of each pair of arguments and a word.
inline void expect_each_refused(std::initializer_list<std::pair<const char*, const char*>> wrong) {
  for (const auto& [arguments, word] : wrong) expect_refused(arguments, word);
}

/// Expects a flat row: the schema promises no nested values.
inline void expect_flat(const json& row) {
  for (const auto& [key, value] : row.items()) EXPECT_TRUE(value.is_primitive()) << key;
}

}  // namespace pinfold::testing
