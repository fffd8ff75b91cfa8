// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/kernel_entries.hpp"

#include "monitors/code_scan/own_memory.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <cstring>

namespace pinfold::monitors::code_scan {

namespace {

constexpr std::uint8_t escape = 0x0F, syscall_byte = 0x05, sysenter_byte = 0x34, interrupt = 0xCD, gate = 0x80;

// Visits every byte equal to `first` that has `more` bytes behind it.
template <class F>
void for_each(std::uint8_t first, std::span<const std::uint8_t> bytes, std::size_t more, F&& visit) {
  const auto* const end = bytes.data() + bytes.size() - std::min(more, bytes.size());
  for (const auto* here = bytes.data(); here < end; ++here) {
    here = static_cast<const std::uint8_t*>(std::memchr(here, first, static_cast<std::size_t>(end - here)));
    if (here == nullptr) return;
    visit(here);
  }
}

// Visits the region piece by piece, each with a few bytes of the next. Returns false if it cannot be read.
template <class F>
bool for_each_piece(const range& region, F&& visit) {
  constexpr std::size_t most = std::size_t{1} << 20U;
  constexpr std::size_t overlap = 5;
  for (auto at = region.begin; at < region.end; at += most) {
    const auto bytes = read_bytes({at, std::min(at + most + overlap, region.end)});
    if (bytes.empty()) return false;
    visit(code_bytes{bytes, at});
  }
  return true;
}

kernel_entry of_any_number(std::uintptr_t at, std::uintptr_t function = 0) { return {at, function, {{}, true}}; }

// Returns the number that a `mov` directly before the instruction puts into eax, as compilers and people write it.
std::optional<std::uint32_t> number_right_before(std::uintptr_t candidate) noexcept {
  struct [[gnu::packed]] move {
    std::uint8_t code;
    std::uint32_t number;
  };
  constexpr std::uint8_t move_to_eax = 0xB8;
  const auto before = read_object<move>(candidate - sizeof(move));
  if (!before || before->code != move_to_eax || before->number > UINT16_MAX) return std::nullopt;
  return before->number;
}

// Returns whether decoding from `start` arrives at the candidate, through instructions that a program can run.
bool arrives(const code_bytes& code, std::uintptr_t start, std::uintptr_t candidate) noexcept {
  while (start < candidate) {
    const auto one = decode(code.from(start));
    if (!one || one->is_privileged) return false;
    start = one->end();
  }
  return start == candidate;
}

// Returns whether a function may begin at `at`, by the bytes that compilers put before or at its start.
bool may_begin(const code_bytes& code, std::uintptr_t at) noexcept {
  constexpr std::uint8_t returns = 0xC3, breakpoint = 0xCC, nothing = 0x90, zero = 0, indirect_branch_mark = 0xF3;
  if (at == code.at || code.from(at).bytes.front() == indirect_branch_mark) return true;
  const auto before = code.from(at - 1).bytes.front();
  return before == returns || before == breakpoint || before == nothing || before == zero;
}

// Decodes from each place near the candidate where a function may begin, and from all addresses some way before it.
// After a few instructions a decoder finds the instruction boundaries, even if it started inside an instruction.
bool may_be_reached(const code_bytes& code, std::uintptr_t candidate) noexcept {
  PINFOLD_ASSERT(code.at <= candidate && candidate < code.end(), "the candidate lies in the code");
  constexpr std::uintptr_t alignment = 16, enough = 64;
  for (auto at = candidate / alignment * alignment; at >= code.at && candidate - at < 2 * enough; at -= alignment)
    if (may_begin(code, at) && arrives(code, at, candidate)) return true;
  if (candidate - code.at < enough) return arrives(code, code.at, candidate);
  for (auto at = code.at; candidate - at >= enough; ++at)
    if (arrives(code, at, candidate)) return true;
  return false;
}

std::optional<kernel_entry> look_between_functions(const range& piece, std::uintptr_t candidate) {
  PINFOLD_ASSERT(piece.begin <= candidate && candidate < piece.end, "the candidate lies in the piece");
  constexpr std::size_t enough = 80;
  constexpr std::size_t longest_instruction = 15;
  const auto begin = candidate - piece.begin > enough ? candidate - enough : piece.begin;
  const auto bytes = read_bytes({begin, std::min(candidate + longest_instruction, piece.end)});
  if (bytes.empty()) return of_any_number(candidate);
  const code_bytes code{bytes, begin};
  const auto itself = decode(code.from(candidate));
  if (!itself || itself->enters == entry_by::nothing) return std::nullopt;
  const auto number = number_right_before(candidate);
  const bool continues = itself->end() >= code.end() || decode(code.from(itself->end()));
  if (!number && !continues) return std::nullopt;
  if (!number && !may_be_reached(code, candidate)) return std::nullopt;
  if (number && itself->enters == entry_by::syscall) return kernel_entry{candidate, 0, {{*number}, false}};
  return of_any_number(candidate);
}

}  // namespace

std::optional<std::vector<std::uintptr_t>> entry_finder::candidates() const {
  std::vector<std::uintptr_t> found;
  const bool read = for_each_piece(region_.at, [&](const code_bytes& code) {
    const auto add = [&](const std::uint8_t* at) {
      const auto address = code.at + static_cast<std::size_t>(at - code.bytes.data());
      const auto holds = [&](const range& section) { return section.begin <= address && address < section.end; };
      if (std::any_of(sections_.begin(), sections_.end(), holds)) found.push_back(address);
    };
    for_each(escape, code.bytes, 1, [&](const std::uint8_t* at) {
      if (at[1] == syscall_byte || at[1] == sysenter_byte) add(at);
    });
    for_each(interrupt, code.bytes, 1, [&](const std::uint8_t* at) {
      if (at[1] == gate) add(at);
    });
  });
  if (!read) return std::nullopt;
  return found;
}

// Takes any bytes that could be a jump as a jump.
std::vector<entry_finder::jump> entry_finder::find_jumps() const {
  constexpr std::uint8_t jump_far = 0xE9, conditions = 0xF0, if_far = 0x80;
  constexpr std::size_t distance_bytes = 4;
  std::vector<jump> found;
  const bool read = for_each_piece(region_.at, [&](const code_bytes& code) {
    const auto add = [&](const std::uint8_t* distance_at) {
      std::int32_t distance = 0;
      std::memcpy(&distance, distance_at, sizeof distance);
      const auto source = code.at + static_cast<std::size_t>(distance_at - code.bytes.data());
      const auto target = source + distance_bytes + static_cast<std::uintptr_t>(std::int64_t{distance});
      if (target >= region_.at.begin && target < region_.at.end) found.push_back({target, source});
    };
    for_each(jump_far, code.bytes, distance_bytes, [&](const std::uint8_t* at) { add(at + 1); });
    for_each(escape, code.bytes, distance_bytes + 1, [&](const std::uint8_t* at) {
      if ((at[1] & conditions) == if_far) add(at + 2);
    });
  });
  static_cast<void>(read);  // the region could be read a moment ago
  std::sort(found.begin(), found.end(), [](const jump& a, const jump& b) { return a.target < b.target; });
  return found;
}

std::vector<std::uintptr_t> entry_finder::entered_at(const range& function) {
  if (!jumps_) jumps_ = find_jumps();
  const std::vector<jump>& jumps = *jumps_;
  std::vector<std::uintptr_t> found;
  auto one = std::lower_bound(jumps.begin(), jumps.end(), function.begin,
                              [](const jump& each, std::uintptr_t at) { return each.target < at; });
  for (; one != jumps.end() && one->target < function.end; ++one)
    if (one->source < function.begin || one->source >= function.end) found.push_back(one->target);
  return found;
}

std::optional<kernel_entry> entry_finder::look_in(const range& function, std::uintptr_t candidate) {
  PINFOLD_ASSERT(function.begin <= candidate && candidate < function.end, "the candidate lies in the function");
  constexpr std::size_t largest = std::size_t{1} << 24U;
  if (function.size() > largest) return of_any_number(candidate, function.begin);
  const auto bytes = read_bytes(function);
  const code_bytes code{bytes, function.begin};
  const auto before = decode_all({std::span(bytes).first(std::min(candidate - function.begin, bytes.size())), code.at});
  const auto reached = before.empty() ? function.begin : before.back().end();
  const auto itself = bytes.empty() ? std::nullopt : decode(code.from(candidate));
  // Decoding stopped in an instruction that extends past the candidate's first byte, or at bytes that are no
  // instruction.
  if (reached != candidate) {
    const auto around = reached < candidate ? decode(code.from(reached)) : std::nullopt;
    if (around && around->end() > candidate) return std::nullopt;
    return of_any_number(candidate, function.begin);
  }
  if (itself && itself->enters == entry_by::nothing) return std::nullopt;
  if (!itself || itself->enters != entry_by::syscall) return of_any_number(candidate, function.begin);
  const auto all = decode_all(code);
  return kernel_entry{candidate, function.begin, numbers_at(code, all, before.size(), entered_at(function))};
}

std::optional<kernel_entry> entry_finder::look_at(std::uintptr_t candidate) {
  const auto piece = functions_.around(candidate);
  return piece.known ? look_in(piece.at, candidate) : look_between_functions(piece.at, candidate);
}

}  // namespace pinfold::monitors::code_scan
