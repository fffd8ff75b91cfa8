// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/dangers.hpp"

#include "invalidation/own_code.hpp"
#include "monitors/code_scan/kernel_entries.hpp"
#include "monitors/code_scan/own_memory.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace pinfold::monitors::code_scan {

namespace {

std::string hexadecimal(std::uintptr_t number) {
  constexpr int base = 16;
  std::array<char, 2 * sizeof number> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
  return "0x" + std::string(digits.data(), end);
}

std::string description_of(const code_region& region, const char* what) {
  return std::string(region.name()) + ": " + what;
}

bool is_hooked(const kernel_entry& entry, const known_code& known) {
  return entry.function != 0 &&
         std::find(known.hooked.begin(), known.hooked.end(), entry.function) != known.hooked.end();
}

// Returns the effect of the instruction that is not known to be harmless, or null.
const char* danger_of(const kernel_entry& entry, const code_region& region, const known_code& known) {
  constexpr std::uint32_t brk = 12;
  const bool in_linker = known.linker.overlaps(region.at);
  const auto is_here = [&](const range& one) { return one.overlaps(region.at); };
  const bool in_glibc = in_linker || std::any_of(known.libc.begin(), known.libc.end(), is_here);
  if (entry.numbers.unknown && !in_glibc) return "a system call of unknown number";
  for (const auto number : entry.numbers.values)
    if (is_dangerous(number) && (!in_linker || number != brk)) return name_of_call(number);
  return nullptr;
}

// Returns whether the instruction belongs to another copy of this library, which has the same bytes and never unmaps
// registered memory with them.
bool is_of_another_copy(std::uintptr_t candidate) {
  const auto own = invalidation::own_system_call_code();
  const std::string_view code(reinterpret_cast<const char*>(own.begin), own.size());
  const auto at = code.find("\x0F\x05");
  if (at == std::string_view::npos || candidate < at) return false;
  const auto other = read_bytes({candidate - at, candidate - at + own.size()});
  return std::equal(other.begin(), other.end(), code.begin(), code.end(),
                    [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); });
}

std::string danger_in_file(const code_region& region, const known_code& known) {
  entry_finder finder(region);
  const auto candidates = finder.candidates();
  if (!candidates) return description_of(region, "the code cannot be read");
  for (const auto candidate : *candidates) {
    if (invalidation::is_own_code(candidate)) continue;
    const auto entry = finder.look_at(candidate);
    if (!entry || is_hooked(*entry, known)) continue;
    if (const auto* danger = danger_of(*entry, region, known); danger != nullptr && !is_of_another_copy(candidate))
      return description_of(region, danger) + " by its own instruction at +" +
             hexadecimal(candidate - finder.functions().base());
  }
  return {};
}

// Scans memory of no file. Neither its functions nor their origin are known, but without the bytes of an instruction
// that enters the kernel it contains no such instruction.
std::string danger_in_memory(const code_region& region) {
  const auto candidates = entry_finder(region).candidates();
  if (!candidates) return description_of(region, "the code cannot be read");
  for (const auto candidate : *candidates)
    if (!invalidation::is_own_code(candidate))
      return description_of(region, "code generated at run time enters the kernel at ") + hexadecimal(candidate);
  return {};
}

}  // namespace

std::string danger_in(const code_region& region, const known_code& known) {
  if (region.is_of_the_kernel()) return {};
  if (!region.readable) return description_of(region, "the code cannot be read");
  if (region.writable) return description_of(region, "writable code at ") + hexadecimal(region.at.begin);
  if (region.is_of_a_file()) return danger_in_file(region, known);
  if (!region.file.empty()) return description_of(region, "code that can be changed through another mapping");
  return danger_in_memory(region);
}

}  // namespace pinfold::monitors::code_scan
