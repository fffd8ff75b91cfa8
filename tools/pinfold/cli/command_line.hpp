// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The part of CLI11 that the tool uses, under CLI11's names. CLI11 takes seconds to compile in each file that includes
/// it, so only command_line.cpp includes it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace tool::CLI {

/// A condition on a value.
class Validator {
 public:
  explicit Validator(std::shared_ptr<const ::CLI::Validator> real) : real_(std::move(real)) {}
  [[nodiscard]] const ::CLI::Validator& real() const noexcept { return *real_; }

 private:
  std::shared_ptr<const ::CLI::Validator> real_;
};

[[nodiscard]] Validator Range(int least, int most);
[[nodiscard]] Validator Range(double least, double most);
[[nodiscard]] Validator Range(std::size_t least, std::size_t most);
[[nodiscard]] Validator IsMember(const std::vector<std::string>& names);
extern const Validator ExistingDirectory;

class Option {
 public:
  explicit Option(::CLI::Option& real) noexcept : real_(real) {}

  Option* required();
  Option* needs(Option* other);
  Option* excludes(Option* other);
  Option* check(const Validator& validator);
  /// Adds a check. The function returns what is wrong with the value, or nothing when it is right.
  Option* check(std::function<std::string(const std::string&)> complaint);
  Option* delimiter(char between);
  Option* allow_extra_args(bool allow);
  Option* default_str(std::string text);
  Option* capture_default_str();
  /// Accepts sizes, with commas between them, as `pinfold::parse_size` reads them.
  Option* size();
  /// Accepts durations such as `100ms`, too. A number without a unit counts `usual`; the option's number does so in any
  /// case.
  Option* duration(std::chrono::nanoseconds usual);

 private:
  ::CLI::Option& real_;
};

class App {
 public:
  App(std::string description, std::string name);
  explicit App(::CLI::App& subcommand);

  App* add_subcommand(std::string name, std::string description);
  /// For the types that command_line.cpp instantiates; the linker finds no other.
  template <class T>
  Option* add_option(std::string name, T& into, std::string description);
  /// Adds an option for a number between two limits, which shows its default.
  template <class T, class Limit>
  Option* add_number(std::string name, T& into, std::string description, Limit least, Limit most) {
    return add_option(std::move(name), into, std::move(description))->check(Range(least, most))->capture_default_str();
  }
  /// Adds an option for a duration between two limits, all of them in seconds, which shows its default.
  Option* add_seconds(std::string name, double& into, std::string description, double least, double most) {
    return add_number(std::move(name), into, std::move(description), least, most)->duration(std::chrono::seconds(1));
  }
  template <class T>
  Option* add_option_function(std::string name, const std::function<void(const T&)>& take, std::string description);
  Option* add_flag(std::string name, bool& into, std::string description);
  Option* add_flag_callback(std::string name, std::function<void()> given, std::string description);
  /// Returns an option that was added before.
  Option* get_option(const std::string& name);
  void set_version_flag(std::string name, const std::string& version);
  void require_subcommand(std::size_t least, std::size_t most);
  void callback(std::function<void()> parsed);
  void footer(std::string text);

  /// Returns 0 when the command line asked for output that has been printed, and 2 when it was wrong, which is
  /// explained on standard error. Else the name of the chosen subcommand begins later complaints (`output.hpp`).
  [[nodiscard]] std::optional<int> parse(int argc, const char* const* argv);

 private:
  Option* keep(::CLI::Option* added);

  std::shared_ptr<::CLI::App> real_;
  std::vector<std::unique_ptr<App>> subcommands_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace tool::CLI
