// SPDX-License-Identifier: BSD-3-Clause
#include "top/short_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

namespace tool::top {
namespace {

double down_to_tenth(double value) { return std::floor(value * 10) / 10; }

// Below 10, a tenth is worth its two characters.
std::string scaled(double value, bool whole, std::string_view unit) {
  if (value < 10 && !whole) return fmt::format("{:.1f}{}", down_to_tenth(value), unit);
  return fmt::format("{:.0f}{}", std::floor(value), unit);
}

}  // namespace

std::string short_count(std::uint64_t number) {
  constexpr std::string_view units = "kMGTPE";
  if (number < 100000) return fmt::format("{}", number);
  std::size_t unit = 0;
  for (number /= 1000; number >= 10000 && unit + 1 < units.size(); ++unit) number /= 1000;
  return fmt::format("{}{}", number, units[unit]);
}

std::string short_size(std::uint64_t bytes) {
  constexpr std::array units{"B", "K", "M", "G", "T", "P", "E"};
  if (bytes == UINT64_MAX) return "-";
  std::size_t unit = 0;
  std::uint64_t divisor = 1;
  for (; unit + 1 < units.size() && bytes / divisor >= 1024; ++unit) divisor *= 1024;
  const auto whole = bytes / divisor;
  const auto rest = static_cast<double>(bytes % divisor) / static_cast<double>(divisor);
  return scaled(static_cast<double>(whole) + rest, rest == 0, units[unit]);
}

std::string short_time(std::optional<std::uint64_t> ns) {
  if (!ns) return "-";
  if (*ns < 1000) return fmt::format("{}ns", *ns);
  auto value = static_cast<double>(*ns) / 1000;
  for (const auto* unit : {"us", "ms"}) {
    if (value < 1000) return scaled(value, false, unit);
    value /= 1000;
  }
  struct step {
    double limit;
    double divisor;
    const char* unit;
  };
  for (const auto& one : {step{600, 1, "s"}, step{36000, 60, "m"}, step{864000, 3600, "h"}})
    if (value < one.limit) return scaled(value / one.divisor, false, one.unit);
  return fmt::format("{:.0f}d", std::floor(std::min(value / 86400, 9999.0)));
}

std::string short_rate(double rate) {
  if (rate < 0.05) return "0";
  if (rate < 9.95) return fmt::format("{:.1f}", rate);
  return rate < 1e19 ? short_count(static_cast<std::uint64_t>(std::llround(std::min(rate, 9e18)))) : "-";
}

std::string short_percent(std::optional<double> share) {
  if (!share) return "-";
  return *share >= 1 ? "100" : fmt::format("{:.1f}", std::floor(*share * 1000) / 10);
}

std::string cut(std::string_view text, std::size_t width) {
  if (text.size() <= width) return std::string(text);
  return width == 0 ? "" : std::string(text.substr(0, width - 1)) + "~";
}

std::string left(std::string_view text, std::size_t width) { return fmt::format("{:<{}}", cut(text, width), width); }
std::string right(std::string_view text, std::size_t width) { return fmt::format("{:>{}}", cut(text, width), width); }

}  // namespace tool::top
