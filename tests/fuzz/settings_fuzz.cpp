// SPDX-License-Identifier: BSD-3-Clause
// Takes any bytes as a settings file: it is either refused with a place, or accepted and then printed and read back the
// same.
#include <pinfold/settings.hpp>

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto options = pinfold::options_from_text(text, "fuzz");
  if (!options) {
    require(options.error().where.starts_with("fuzz:"), "an error without its place");
    require(*options.error().cause.message != '\0', "an error without a sentence");
    return 0;
  }
  const auto printed = pinfold::to_text(*options);
  const auto again = pinfold::options_from_text(printed, "printed");
  require(again.has_value(), "what was printed is refused");
  require(pinfold::to_text(*again) == printed, "what was printed reads back differently");
  return 0;
}
