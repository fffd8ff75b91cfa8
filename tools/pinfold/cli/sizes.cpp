// SPDX-License-Identifier: BSD-3-Clause
#include "cli/sizes.hpp"

#include "cli/failure.hpp"

#include <pinfold/settings.hpp>

#include <array>
#include <fmt/format.h>
#include <string_view>

namespace tool {
namespace {

constexpr std::size_t smallest_message = 8;  // room for one word of the content

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::size_t parse_one_size(std::string_view text) {
  text = without_blanks(text);
  const auto size = pinfold::parse_size(text);
  if (!size) throw usage_failure(fmt::format("'{}' is not a size: {}", text, size.error().message));
  if (*size < smallest_message) throw usage_failure(fmt::format("'{}' is too small: the minimum is 8 bytes", text));
  return *size;
}

std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  std::string_view rest = text;
  for (auto comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
    sizes.push_back(parse_one_size(rest.substr(0, comma)));
    rest.remove_prefix(comma + 1);
  }
  sizes.push_back(parse_one_size(rest));
  return sizes;
}

std::string size_text(std::size_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto scaled = static_cast<double>(bytes);
  std::size_t unit = 0;
  std::size_t divisor = 1;
  for (; unit + 1 < units.size() && scaled >= 1024; ++unit, divisor *= 1024) scaled /= 1024;
  return bytes % divisor == 0 ? fmt::format("{} {}", bytes / divisor, units[unit])
                              : fmt::format("{:.1f} {}", scaled, units[unit]);
}

std::string range_text(std::uint64_t begin, std::uint64_t end) {
  if (begin == 0 && end == UINT64_MAX) return "all memory";
  return end > begin ? fmt::format("{:#x} {}", begin, size_text(end - begin)) : "";
}

}  // namespace tool
