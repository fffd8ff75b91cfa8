// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/node_budget.hpp>
#include <pinfold/settings.hpp>

#include "settings/settings_table.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/auxv.h>
#include <unistd.h>
#include <utility>

namespace pinfold {
namespace {

using outcome = tl::expected<cache_options, settings_error>;

constexpr std::string_view prefix = "PINFOLD_";
constexpr std::string_view test_prefix = "PINFOLD_TEST_";  // for the test programs, never for the library
constexpr const char* config_name = "PINFOLD_CONFIG";

/// Variables that are not options of a cache, and that other code reads.
constexpr std::array<std::string_view, 9> others{
    config_name,
    "PINFOLD_TRACE",         // by every cache
    "PINFOLD_DUMP_SIGNAL",   // by the first cache
    "PINFOLD_DUMP_DIR",      // with it
    "PINFOLD_STATS",         // by every cache
    "PINFOLD_STATS_DIR",     // where statistics pages are
    "PINFOLD_CUDA_LIBRARY",  // which driver is loaded
    "PINFOLD_LIBRARY",       // which library the Python package loads
    "PINFOLD_MONITORD",      // where the monitor `bpf` connects
};
constexpr std::size_t largest_file = std::size_t{64} * 1024;

std::string_view trim(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\v\f";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// Cuts off a comment as a shell does: `#` begins one only at the start of a word.
std::string_view without_comment(std::string_view line) noexcept {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
  }
  return line;
}

tl::unexpected<settings_error> refused(error cause, std::string where) {
  return tl::unexpected<settings_error>(settings_error{cause, std::move(where)});
}

// Returns the assignment, with the path of the account's file that it names: an error of an account is one of its file.
std::string with_file(std::string_view line) {
  const auto equals = line.find('=');
  if (trim(line.substr(0, equals)) != "PINFOLD_NODE_BUDGET" || equals == std::string_view::npos)
    return std::string(line);
  const auto value = trim(line.substr(equals + 1));
  const auto file = node_budget::file_of(value.substr(0, value.find(':')));
  return std::string(line) + (file ? " (" + *file + ")" : "");
}

result<void> assign(cache_options& options, std::string_view name, std::string_view value) noexcept {
  const auto* setting = detail::find_setting(name);
  if (setting == nullptr) return fail(errc::invalid_argument, "unknown setting");
  return setting->assign(options, value);
}

result<void> read_line(cache_options& options, std::string_view line) noexcept {
  if (line.find('\0') != std::string_view::npos) return fail(errc::invalid_argument, "the line has a NUL byte");
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) return fail(errc::invalid_argument, "expected NAME=value");
  return assign(options, trim(line.substr(0, equals)), trim(line.substr(equals + 1)));
}

std::string_view next_line(std::string_view& rest) noexcept {
  const auto end = rest.find('\n');
  const auto line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

result<std::string> read_file(const char* path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"),
                                                   [](FILE* open) { return std::fclose(open); });
  if (file == nullptr) return fail_errno(errc::invalid_argument, errno, "cannot open the settings file");
  std::string text(largest_file + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return fail_errno(errc::invalid_argument, errno, "cannot read the settings file");
  if (text.size() > largest_file) return fail(errc::invalid_argument, "the settings file is larger than 64 KiB");
  return text;
}

outcome options_from_file(const char* path, cache_options base) {
  const auto text = read_file(path);
  if (!text) return refused(text.error(), std::string(config_name) + "=" + path);
  return options_from_text(*text, path, std::move(base));
}

bool is_setting(std::string_view variable) noexcept {
  return variable.starts_with(prefix) && !variable.starts_with(test_prefix);
}

outcome options_from_variables(cache_options options) {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto name = text.substr(0, text.find('='));
    if (!is_setting(text) || std::find(others.begin(), others.end(), name) != others.end()) continue;
    const auto done = read_line(options, text);
    if (!done) return refused(done.error(), "environment: " + with_file(text));
  }
  return options;
}

}  // namespace

outcome options_from_text(std::string_view text, std::string_view origin, cache_options base) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto line = trim(without_comment(next_line(text)));
    if (line.empty()) continue;
    const auto done = read_line(base, line);
    if (!done) {
      const auto shown = line.substr(0, line.find('\0'));  // the error is printed as a C string
      return refused(done.error(), std::string(origin) + ":" + std::to_string(number) + ": " + with_file(shown));
    }
  }
  return base;
}

// A program that has more rights than its caller obeys no variable of the caller: the text of a refused line would show
// a file that only the program may read.
outcome options_from_environment(cache_options base) {
  if (::getauxval(AT_SECURE) != 0) return base;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): as with any reader of the environment, no thread may change it meanwhile
  const char* path = std::getenv(config_name);
  if (path == nullptr || *path == '\0') return options_from_variables(std::move(base));
  auto from_file = options_from_file(path, std::move(base));
  if (!from_file) return from_file;
  return options_from_variables(*std::move(from_file));
}

std::string to_text(const cache_options& options) {
  std::string text =
      "# Settings of pinfold: environment variables, or a file of them that PINFOLD_CONFIG names.\n"
      "# A variable in the environment wins over the file.\n";
  for (const auto& setting : detail::all_settings()) {
    text.append("\n# ").append(setting.comment).append("\n");
    text.append(setting.name).append("=").append(setting.print(options)).append("\n");
  }
  return text;
}

}  // namespace pinfold
