// SPDX-License-Identifier: BSD-3-Clause
// Takes any bytes as a settings file: it is either refused with a place, or accepted and then printed and read back the
// same.
#include <pinfold/node_budget.hpp>
#include <pinfold/settings.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "settings_fuzz: %s\n", what);
  std::abort();
}

// Accounts are files that outlive their members: removes those that the text names.
void remove_accounts(std::string_view text) {
  constexpr std::string_view setting = "NODE_BUDGET";
  constexpr std::string_view blanks = " \t\r";
  for (auto at = text.find(setting); at != std::string_view::npos; at = text.find(setting, at + 1)) {
    auto value = text.substr(at, text.find('\n', at) - at);
    value.remove_prefix(std::min(value.find('='), value.size() - 1) + 1);
    value.remove_prefix(std::min(value.find_first_not_of(blanks), value.size()));
    static_cast<void>(pinfold::node_budget::remove(value.substr(0, value.find_first_of(": \t\r#"))));
  }
}

void check(std::string_view text) {
  const auto options = pinfold::options_from_text(text, "fuzz");
  if (!options) {
    require(options.error().where.starts_with("fuzz:"), "an error without its place");
    require(*options.error().cause.message != '\0', "an error without a sentence");
    return;
  }
  const auto printed = pinfold::to_text(*options);
  const auto again = pinfold::options_from_text(printed, "printed");
  require(again.has_value(), "what was printed is refused");
  require(pinfold::to_text(*again) == printed, "what was printed reads back differently");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  remove_accounts(text);
  return 0;
}
