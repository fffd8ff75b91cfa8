// SPDX-License-Identifier: BSD-3-Clause
// Sizes and durations in the form in which people write them.
#include <pinfold/settings.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>

namespace pinfold {
namespace {

constexpr const char* not_a_size =
    "expected a number, optionally with a fraction and followed by K, M, G or T (also k, KB, KiB, or after a blank), "
    "or unlimited";
constexpr const char* not_a_duration =
    "expected a number, optionally with a fraction and followed by ns, us, ms, s, min or h";
constexpr const char* too_large = "the number is too large";

// A text's number, and the unit behind it.
struct quantity {
  std::uint64_t whole = 0;
  double fraction = 0;  // below 1
  std::string_view unit;
};

bool is_digit(char one) noexcept { return one >= '0' && one <= '9'; }

// Returns the digits after a point; nothing if there are none. Leaves the text after them in `rest`.
std::optional<double> read_fraction(std::string_view& rest) noexcept {
  double value = 0;
  double place = 1;
  for (; !rest.empty() && is_digit(rest.front()); rest.remove_prefix(1)) {
    place /= 10;
    value += place * (rest.front() - '0');
  }
  return place < 1 ? std::optional(value) : std::nullopt;
}

result<quantity> read_quantity(std::string_view text, const char* expected) noexcept {
  quantity read;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), read.whole);
  if (code == std::errc::result_out_of_range) return fail(errc::invalid_argument, too_large);
  if (code != std::errc{}) return fail(errc::invalid_argument, expected);
  read.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (read.unit.starts_with('.')) {
    read.unit.remove_prefix(1);
    const auto fraction = read_fraction(read.unit);
    if (!fraction) return fail(errc::invalid_argument, expected);
    read.fraction = *fraction;
  }
  if (read.unit.size() > 1 && read.unit.front() == ' ') read.unit.remove_prefix(1);
  return read;
}

// Returns the quantity in its base unit, rounded. Only a whole number of base units has no fraction.
result<std::uint64_t> scaled(const quantity& read, std::uint64_t unit, const char* expected) noexcept {
  if (unit == 1 && read.fraction != 0) return fail(errc::invalid_argument, expected);
  // not std::llround: programs that link the static library need no libm
  const double exact = read.fraction * static_cast<double>(unit);
  auto part = static_cast<std::uint64_t>(exact);
  if (exact - static_cast<double>(part) >= 0.5) ++part;
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  if (read.whole > most / unit || read.whole * unit > most - part) return fail(errc::invalid_argument, too_large);
  return read.whole * unit + part;
}

std::optional<std::uint64_t> bytes_of(std::string_view unit) noexcept {
  if (unit.empty() || unit == "B") return 1;
  if (unit.size() > 1 && (unit.back() == 'B' || unit.back() == 'b')) unit.remove_suffix(1);
  if (unit.size() > 1 && unit.back() == 'i') unit.remove_suffix(1);
  if (unit.size() != 1) return std::nullopt;
  constexpr std::string_view units = "KMGTkmgt";
  const auto at = units.find(unit.front());
  if (at == std::string_view::npos) return std::nullopt;
  return std::uint64_t{1} << (10 * (at % 4 + 1));
}

struct time_unit {
  std::string_view name;
  std::uint64_t ns;
};
constexpr std::array<time_unit, 6> time_units{{{"ns", 1},
                                               {"us", 1'000},
                                               {"ms", 1'000'000},
                                               {"s", 1'000'000'000},
                                               {"min", 60'000'000'000},
                                               {"h", 3'600'000'000'000}}};

std::optional<std::uint64_t> nanoseconds_of(std::string_view unit, std::chrono::nanoseconds usual) noexcept {
  if (unit.empty()) return static_cast<std::uint64_t>(usual.count());
  for (const auto& one : time_units)
    if (one.name == unit) return one.ns;
  return std::nullopt;
}

}  // namespace

result<std::size_t> parse_size(std::string_view text) noexcept {
  if (text == "unlimited") return unlimited;
  const auto read = read_quantity(text, not_a_size);
  if (!read) return tl::unexpected(read.error());
  const auto unit = bytes_of(read->unit);
  if (!unit) return fail(errc::invalid_argument, not_a_size);
  return scaled(*read, *unit, not_a_size);
}

result<std::chrono::nanoseconds> parse_duration(std::string_view text, std::chrono::nanoseconds usual) noexcept {
  const auto read = read_quantity(text, not_a_duration);
  if (!read) return tl::unexpected(read.error());
  const auto unit = nanoseconds_of(read->unit, usual);
  if (!unit) return fail(errc::invalid_argument, not_a_duration);
  const auto ns = scaled(*read, *unit, not_a_duration);
  if (!ns) return tl::unexpected(ns.error());
  if (*ns > static_cast<std::uint64_t>(std::chrono::nanoseconds::max().count()))
    return fail(errc::invalid_argument, too_large);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*ns));
}

}  // namespace pinfold
