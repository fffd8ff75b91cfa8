// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The look of `--help`, which help2man turns into the man pages. Only command_line.cpp includes it.
#pragma once

#include "cli/text_width.hpp"

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

namespace tool::CLI {

/// Writes `-o, --output=TEXT` or `--via=pidfd|scm`, and what an option demands in brackets behind its description. No
/// line is longer than `help_width`.
class help_format : public ::CLI::Formatter {
 public:
  help_format() { label("Positionals", "Arguments"); }

  [[nodiscard]] std::string make_option_name(const ::CLI::Option* option, bool is_positional) const override {
    return ::CLI::detail::find_and_replace(Formatter::make_option_name(option, is_positional), ",", ", ");
  }

  [[nodiscard]] std::string make_option(const ::CLI::Option* option, bool is_positional) const override {
    const auto name = make_option_name(option, is_positional) + make_option_opts(option);
    return list_entry(name, make_option_desc(option), get_column_width());
  }

  [[nodiscard]] std::string make_subcommand(const ::CLI::App* command) const override {
    return list_entry(command->get_name(), command->get_description(), get_column_width());
  }

  [[nodiscard]] std::string make_description(const ::CLI::App* command) const override {
    return narrowed(Formatter::make_description(command));
  }

  [[nodiscard]] std::string make_footer(const ::CLI::App* command) const override {
    return narrowed(Formatter::make_footer(command));
  }

  [[nodiscard]] std::string make_option_opts(const ::CLI::Option* option) const override {
    auto value = option->get_positional() || is_flag(option) ? std::string() : "=" + value_of(option);
    if (option->get_expected_max() != ::CLI::detail::expected_max_vector_size) return value;
    return value + (option->get_delimiter() == ',' ? ",..." : "...");
  }

  [[nodiscard]] std::string make_option_desc(const ::CLI::Option* option) const override {
    std::vector<std::string> notes;
    const auto [type, limits] = parts_of(option);
    if (!limits.empty() && !is_set(limits)) notes.push_back(limits);
    if (is_long_set(limits)) notes.push_back("one of " + ::CLI::detail::find_and_replace(names_in(limits), ",", ", "));
    auto usual = option->get_default_str();
    if (usual.starts_with('[')) usual = usual.substr(1, usual.size() - 2);
    if (!usual.empty()) notes.push_back("default: " + usual);
    if (option->get_required()) notes.emplace_back("required");
    if (!option->get_needs().empty()) notes.push_back("needs " + names_of(option->get_needs()));
    if (!option->get_excludes().empty()) notes.push_back("not with " + names_of(option->get_excludes()));
    const auto joined = ::CLI::detail::join(notes, "; ");
    return option->get_description() + (notes.empty() ? "" : " (" + joined + ")");
  }

 private:
  struct type_and_limits {
    std::string type;
    std::string limits;
  };

  // CLI11 has them as one text: `UINT:1 to 64`.
  static type_and_limits parts_of(const ::CLI::Option* option) {
    const auto whole = option->get_type_name();
    const auto colon = whole.find(':');
    if (colon == std::string::npos) return {whole, ""};
    return {whole.substr(0, colon), whole.substr(colon + 1)};
  }

  static bool is_flag(const ::CLI::Option* option) { return option->get_type_name().empty(); }
  static bool is_set(const std::string& limits) { return limits.starts_with('{'); }

  static std::string names_in(const std::string& limits) { return limits.substr(1, limits.size() - 2); }
  static bool is_long_set(const std::string& limits) {
    constexpr std::size_t longest = 40;
    return is_set(limits) && limits.size() > longest;
  }

  static std::string value_of(const ::CLI::Option* option) {
    const auto [type, limits] = parts_of(option);
    if (is_long_set(limits)) return "NAME";
    if (is_set(limits)) return ::CLI::detail::find_and_replace(names_in(limits), ",", "|");
    return type == "TEXT" || type == "SIZE" || type == "TIME" ? type : "NUMBER";
  }

  static std::string names_of(const std::set<::CLI::Option*>& options) {
    std::set<std::string> names;  // in an order that does not depend on addresses
    for (const auto* one : options) names.insert(one->get_name());
    return ::CLI::detail::join(names, ", ");
  }
};

}  // namespace tool::CLI
