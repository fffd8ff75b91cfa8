// SPDX-License-Identifier: BSD-3-Clause
#include "cli/command_line.hpp"

#include "cli/help_format.hpp"

#include <CLI/CLI.hpp>
#include <iomanip>
#include <sstream>
#include <utility>

namespace tool::CLI {
namespace {

template <class Kind, class... Arguments>
Validator made(Arguments&&... arguments) {
  return Validator(std::make_shared<Kind>(std::forward<Arguments>(arguments)...));
}

template <class T>
Validator range(T least, T most) {
  std::ostringstream text;  // as `--help` shows it
  text << std::setprecision(9) << least << " to " << most;
  return made<::CLI::Range>(least, most, text.str());
}

}  // namespace

Validator Range(int least, int most) { return range(least, most); }
Validator Range(double least, double most) { return range(least, most); }
Validator Range(std::size_t least, std::size_t most) { return range(least, most); }
Validator IsMember(const std::vector<std::string>& names) { return made<::CLI::IsMember>(names); }
const Validator ExistingDirectory = made<::CLI::detail::ExistingDirectoryValidator>();

Option* Option::required() {
  real_.required();
  return this;
}

Option* Option::needs(Option* other) {
  real_.needs(&other->real_);
  return this;
}

Option* Option::excludes(Option* other) {
  real_.excludes(&other->real_);
  return this;
}

Option* Option::check(const Validator& validator) {
  real_.check(validator.real());
  return this;
}

Option* Option::check(std::function<std::string(const std::string&)> complaint) {
  real_.check(std::move(complaint));
  return this;
}

Option* Option::delimiter(char between) {
  real_.delimiter(between);
  return this;
}

Option* Option::allow_extra_args(bool allow) {
  real_.allow_extra_args(allow);
  return this;
}

Option* Option::default_str(std::string text) {
  real_.default_str(std::move(text));
  return this;
}

Option* Option::capture_default_str() {
  real_.capture_default_str();
  return this;
}

App::App(std::string description, std::string name)
    : real_(std::make_shared<::CLI::App>(std::move(description), std::move(name))) {
  real_->formatter(std::make_shared<help_format>());  // subcommands inherit it
}

App::App(::CLI::App& subcommand) : real_(std::shared_ptr<void>(), &subcommand) {}  // its parent command owns it

App* App::add_subcommand(std::string name, std::string description) {
  auto* const added = real_->add_subcommand(std::move(name), std::move(description));
  return subcommands_.emplace_back(std::make_unique<App>(*added)).get();
}

Option* App::keep(::CLI::Option* added) { return options_.emplace_back(std::make_unique<Option>(*added)).get(); }

template <class T>
Option* App::add_option(std::string name, T& into, std::string description) {
  return keep(real_->add_option(std::move(name), into, std::move(description)));
}

template Option* App::add_option(std::string, std::string&, std::string);
template Option* App::add_option(std::string, double&, std::string);
template Option* App::add_option(std::string, int&, std::string);
template Option* App::add_option(std::string, unsigned&, std::string);
template Option* App::add_option(std::string, std::size_t&, std::string);
template Option* App::add_option(std::string, std::optional<std::string>&, std::string);
template Option* App::add_option(std::string, std::optional<unsigned>&, std::string);
template Option* App::add_option(std::string, std::optional<std::size_t>&, std::string);
template Option* App::add_option(std::string, std::vector<std::string>&, std::string);
template Option* App::add_option(std::string, std::vector<unsigned>&, std::string);
template Option* App::add_option(std::string, std::vector<std::size_t>&, std::string);

template <class T>
Option* App::add_option_function(std::string name, const std::function<void(const T&)>& take, std::string description) {
  return keep(real_->add_option_function<T>(std::move(name), take, std::move(description)));
}

template Option* App::add_option_function(std::string, const std::function<void(const std::string&)>&, std::string);

Option* App::add_flag(std::string name, bool& into, std::string description) {
  return keep(real_->add_flag(std::move(name), into, std::move(description)));
}

Option* App::add_flag_callback(std::string name, std::function<void()> given, std::string description) {
  return keep(real_->add_flag_callback(std::move(name), std::move(given), std::move(description)));
}

Option* App::get_option(const std::string& name) { return keep(real_->get_option(name)); }

void App::set_version_flag(std::string name, const std::string& version) {
  real_->set_version_flag(std::move(name), version);
}

void App::require_subcommand(std::size_t least, std::size_t most) { real_->require_subcommand(least, most); }
void App::callback(std::function<void()> parsed) { real_->callback(std::move(parsed)); }
void App::footer(std::string text) { real_->footer(std::move(text)); }

std::optional<int> App::parse(int argc, const char* const* argv) {
  try {
    real_->parse(argc, argv);
    return std::nullopt;
  } catch (const ::CLI::ParseError& problem) {
    return real_->exit(problem);
  }
}

}  // namespace tool::CLI
