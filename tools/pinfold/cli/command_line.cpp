// SPDX-License-Identifier: BSD-3-Clause
#include "cli/command_line.hpp"

#include "cli/help_format.hpp"
#include "cli/output.hpp"
#include "cli/suggestion.hpp"
#include "cli/text_width.hpp"

#include <pinfold/settings.hpp>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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
  const auto complaint = [least, most, limits = text.str()](const std::string& value) {
    T number{};
    const bool good = ::CLI::detail::lexical_cast(value, number) && number >= least && number <= most;
    return good ? std::string() : fmt::format("'{}' is not in the range {}", value, limits);
  };
  return made<::CLI::Validator>(complaint, text.str());
}

std::string complaint_about_sizes(const std::string& list) {
  for (const auto& one : ::CLI::detail::split(list, ',')) {
    const auto read = pinfold::parse_size(::CLI::detail::trim_copy(one));
    if (!read) return fmt::format("'{}' is not a size: {}", one, read.error().message);
  }
  return {};
}

template <class T>
struct element {
  using type = T;
};
template <class T>
struct element<std::optional<T>> : element<T> {};
template <class T>
struct element<std::vector<T>> : element<T> {};

// Explains a number that CLI11 would take for another one: it wraps negative numbers, and saturates large ones. Leaves
// what is no number to CLI11.
template <class T>
std::string complaint_about_number(const std::string& text) {
  constexpr T most = std::numeric_limits<T>::max();
  errno = 0;
  const auto number = std::strtoull(text.c_str(), nullptr, 0);
  const bool fits = errno != ERANGE && number <= most && text.find('-') == std::string::npos;
  return fits ? std::string() : fmt::format("'{}' is not a number from 0 to {}", text, most);
}

// A chosen command, and its words: `pinfold perf miss`.
struct chosen_command {
  const ::CLI::App* app;
  std::string words;
};

chosen_command chosen_of(const ::CLI::App& app) {
  chosen_command chosen{&app, app.get_name()};
  while (!chosen.app->get_subcommands().empty()) {
    chosen.app = chosen.app->get_subcommands().front();
    chosen.words += " " + chosen.app->get_name();
  }
  return chosen;
}

std::vector<std::string> commands_of(const ::CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* one : app.get_subcommands([](const ::CLI::App*) { return true; })) names.push_back(one->get_name());
  return names;
}

std::vector<std::string> options_of(const ::CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* one : app.get_options([](const ::CLI::Option* option) { return option->nonpositional(); })) {
    for (const auto& name : one->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string meant(const std::string& name) { return name.empty() ? "" : fmt::format("; did you mean '{}'?", name); }

// Explains the first argument that no command expects.
std::string unexpected(const ::CLI::App& app, const std::string& argument) {
  const auto name = argument.substr(0, argument.find('='));
  if (name.starts_with('-'))
    return fmt::format("unknown option '{}'{}", name, meant(nearest_name(name, options_of(app))));
  const auto commands = commands_of(app);
  if (commands.empty()) return fmt::format("unexpected argument '{}'", argument);
  return fmt::format("no subcommand '{}'{}", argument, meant(nearest_name(argument, commands)));
}

// Returns an empty string when the command is complete.
std::string incomplete(const ::CLI::App& chosen) {
  const auto commands = commands_of(chosen);
  return commands.empty() ? "" : "a subcommand is required: " + ::CLI::detail::join(commands, ", ");
}

// Returns the first argument that no command expects.
std::optional<std::string> first_extra(const ::CLI::App& root) {
  for (auto& one : root.remaining(true))
    if (one != "--") return std::move(one);
  return std::nullopt;
}

// Returns the first word that is no subcommand, in a request for help.
std::optional<std::string> wrong_word(const ::CLI::App& root, const ::CLI::App& chosen) {
  auto extra = first_extra(root);
  if (!extra || extra->starts_with('-') || commands_of(chosen).empty()) return std::nullopt;
  return extra;
}

int refuse(const chosen_command& chosen, const std::string& why) {
  const char* const more = commands_of(*chosen.app).empty() ? "" : " and subcommands";
  const auto text = fmt::format("{}: {}\nRun '{} --help' for its options{}.\n", chosen.words, why, chosen.words, more);
  fmt::print(stderr, "{}", narrowed(text));
  return wrong_usage;
}

std::string explained(const ::CLI::App& root, const ::CLI::App& chosen, const ::CLI::ParseError& problem) {
  const std::string_view said = problem.what();
  if (problem.get_name() == "ArgumentMismatch" && said.ends_with(" missing"))
    return fmt::format("{} needs a value", said.substr(0, said.find(':')));
  const auto extra = first_extra(root);
  const bool is_option = extra && extra->starts_with('-');  // more likely the reason than what is missing
  const bool is_extra = is_option || problem.get_exit_code() == static_cast<int>(::CLI::ExitCodes::ExtrasError);
  return is_extra && extra ? unexpected(chosen, *extra) : problem.what();
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

Option* Option::size() {
  real_.type_name("SIZE");
  return check([](const std::string& text) { return complaint_about_sizes(text); });
}

Option* Option::duration(std::chrono::nanoseconds usual) {
  const auto convert = [usual](std::string& text) {
    const auto read = pinfold::parse_duration(text, usual);
    if (!read) return fmt::format("'{}' is not a duration: {}", text, read.error().message);
    text = fmt::format("{}", std::chrono::duration<double>(*read) / std::chrono::duration<double>(usual));
    return std::string();
  };
  real_.transform(::CLI::Validator(convert, ""))->type_name("TIME");
  return this;
}

App::App(std::string description, std::string name)
    : real_(std::make_shared<::CLI::App>(std::move(description), std::move(name))) {
  real_->formatter(std::make_shared<help_format>());  // subcommands inherit it
}

App::App(::CLI::App& subcommand) : real_(std::shared_ptr<void>(), &subcommand) {}  // its parent command owns it

App* App::add_subcommand(std::string name, std::string description) {
  auto* const added = real_->add_subcommand(std::move(name), std::move(description));
  added->footer("");  // or it would be the parent command's
  return subcommands_.emplace_back(std::make_unique<App>(*added)).get();
}

Option* App::keep(::CLI::Option* added) { return options_.emplace_back(std::make_unique<Option>(*added)).get(); }

template <class T>
Option* App::add_option(std::string name, T& into, std::string description) {
  using number = typename element<T>::type;
  auto* const added = real_->add_option(std::move(name), into, std::move(description));
  if constexpr (std::is_unsigned_v<number>)
    added->check([](const std::string& text) { return complaint_about_number<number>(text); });
  return keep(added);
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
    const auto chosen = chosen_of(*real_);
    if (const auto missing = incomplete(*chosen.app); !missing.empty()) return refuse(chosen, missing);
    name_program(chosen.words);
    return std::nullopt;
  } catch (const ::CLI::Success& asked) {
    const auto chosen = chosen_of(*real_);
    if (const auto wrong = wrong_word(*real_, *chosen.app)) return refuse(chosen, unexpected(*chosen.app, *wrong));
    return real_->exit(asked);
  } catch (const ::CLI::ParseError& problem) {
    const auto chosen = chosen_of(*real_);
    return refuse(chosen, explained(*real_, *chosen.app, problem));
  }
}

}  // namespace tool::CLI
