// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/ticks.hpp"

#include "trace/report/html.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>

namespace tool {
namespace {

double decimal_step(double least) noexcept {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

// Steps of 1, 2, 5, 10, 20, 50, 100, 200, 500 and 1024 of a unit.
double binary_step(double least) noexcept {
  constexpr double kilo = 1024;
  double unit = 1;
  while (least > 500 * unit) unit *= kilo;
  const double step = decimal_step(least / unit);
  return step < 1 ? unit : step * unit;
}

std::string short_bytes(double bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && bytes >= 1024; ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

std::string short_time(double nanoseconds) {
  constexpr std::array units{"ns", "µs", "ms", "s"};
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && nanoseconds >= 1000; ++unit) nanoseconds /= 1000;
  return fmt::format("{:.4g} {}", nanoseconds, units[unit]);
}

}  // namespace

std::vector<double> ticks_for(double most, axis_unit unit, int wanted) {
  const double least = most > 0 ? most / wanted : 1.0 / wanted;
  double step = unit == axis_unit::bytes ? binary_step(least) : decimal_step(least);
  if (unit == axis_unit::count && step < 1) step = 1;
  std::vector<double> ticks{0};
  while (ticks.back() < most || ticks.size() < 2) ticks.push_back(step * static_cast<double>(ticks.size()));
  return ticks;
}

std::string tick_text(double value, axis_unit unit) {
  if (value == 0) return "0";
  switch (unit) {
    case axis_unit::bytes: return short_bytes(value);
    case axis_unit::nanoseconds: return short_time(value);
    case axis_unit::percent: return fmt::format("{:.4g} %", value);
    case axis_unit::count: break;
  }
  return html::count_text(static_cast<std::uint64_t>(std::llround(value)));
}

}  // namespace tool
