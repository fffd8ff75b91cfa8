// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/x86_64.hpp"

#include "os/check.hpp"

// Without Zydis nothing is hooked: Debian has no static library of it.
#if defined(__x86_64__) && !defined(PINFOLD_WITHOUT_ZYDIS)

#include <Zydis/Zydis.h>
#include <algorithm>
#include <cstring>
#include <string_view>

namespace pinfold::monitors::x86_64 {

namespace {

constexpr std::size_t word = 8;
constexpr std::size_t function_alignment = 16;

using instruction = ZydisDecodedInstruction;

bool decode(const text& from, instruction& into) noexcept {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, from.bytes.data(), from.bytes.size(), &into));
}

bool fills(const instruction& seen) noexcept {
  return seen.mnemonic == ZYDIS_MNEMONIC_NOP || seen.mnemonic == ZYDIS_MNEMONIC_INT3;
}

// Returns whether execution never continues with the next instruction.
bool ends_flow(const instruction& seen) noexcept {
  return seen.meta.category == ZYDIS_CATEGORY_RET || seen.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
         seen.mnemonic == ZYDIS_MNEMONIC_HLT || seen.mnemonic == ZYDIS_MNEMONIC_UD2;
}

bool in_one_word(std::uintptr_t at, std::size_t size) noexcept { return at / word == (at + size - 1) / word; }

void add(code& to, std::span<const std::uint8_t> bytes) noexcept {
  PINFOLD_ASSERT(to.size + bytes.size() <= code::most, "made code has room for the bytes");
  std::copy(bytes.begin(), bytes.end(), to.bytes.begin() + static_cast<std::ptrdiff_t>(to.size));
  to.size += bytes.size();
}
void add(code& to, const code& more) noexcept { add(to, std::span(more.bytes).first(more.size)); }

template <class T>
void add_number(code& to, T number) noexcept {
  PINFOLD_ASSERT(to.size + sizeof number <= code::most, "made code has room for the number");
  std::memcpy(to.bytes.data() + to.size, &number, sizeof number);
  to.size += sizeof number;
}

std::int64_t distance(std::uintptr_t from, std::uintptr_t to) noexcept { return static_cast<std::int64_t>(to - from); }

bool free_of(const range& pad, std::span<const range> taken) noexcept {
  return std::none_of(taken.begin(), taken.end(), [&](const range& other) { return other.overlaps(pad); });
}

// Returns where a jump fits among unused bytes: within one aligned word if possible, so that a later library can
// replace the jump in one store.
std::uintptr_t hop_in(const range& unused) noexcept {
  for (auto at = unused.begin; at + jump_size <= unused.end; ++at)
    if (in_one_word(at, jump_size)) return at;
  return unused.size() >= jump_size ? unused.begin : 0;
}

struct found_pad {
  range pad{};
  std::uintptr_t hop = 0;
};

// Finds fill bytes behind an instruction that ends the flow, which no thread runs, within reach of a short jump from
// `at`.
found_pad find_pad(const text& segment, std::uintptr_t at, std::span<const range> taken,
                   is_left_over left_over) noexcept {
  const auto farthest = std::min<std::uintptr_t>(at + short_jump_size + INT8_MAX, segment.end());
  bool unused = false;
  range fill{at, at};
  for (auto here = at; here < segment.end();) {
    instruction seen;
    if (!decode(segment.from(here), seen)) break;
    const auto next = here + seen.length;
    const bool near_jump = seen.mnemonic == ZYDIS_MNEMONIC_JMP && seen.length == jump_size;
    if (near_jump && left_over != nullptr && here <= farthest && in_one_word(here, jump_size) && left_over(here, at) &&
        free_of({here, next}, taken))
      return {{here, next}, here};
    if (unused && fills(seen)) {
      fill.end = next;
    } else {
      const auto hop = hop_in(fill);
      if (hop != 0 && hop <= farthest && free_of(fill, taken)) return {fill, hop};
      if (next > farthest) break;
      unused = ends_flow(seen);
      fill = {next, next};
    }
    here = next;
  }
  return {};
}

result<way_in> way_at(const text& segment, std::uintptr_t at, std::span<const range> taken,
                      is_left_over left_over) noexcept {
  instruction first;
  if (!decode(segment.from(at), first))
    return fail(errc::unsupported, "cannot decode the first instruction of a libc function");
  if (first.mnemonic == ZYDIS_MNEMONIC_INT3) return fail(errc::unsupported, "a function begins with a breakpoint");
  if (first.length >= jump_size && in_one_word(at, jump_size)) return way_in{at, first.length};
  if (first.length < short_jump_size || !in_one_word(at, short_jump_size))
    return fail(errc::unsupported, "the first instruction of a libc function is too short to be replaced atomically");
  const auto found = find_pad(segment, at, taken, left_over);
  if (found.hop == 0) return fail(errc::unsupported, "no room for a jump near a libc function");
  return way_in{at, first.length, found.pad, found.hop};
}

// A library whose own jump did not fit leaves a short jump to a jump, as this one does; the second jump is then
// replaced.
result<way_in> way_behind(const text& segment, std::uintptr_t at) noexcept {
  const auto* const entry = segment.from(at).bytes.data();
  const auto target = *entry == 0xEB ? jump_target(entry, at) : 0;
  const bool inside = target >= segment.at && target + jump_size <= segment.end();
  if (inside && in_one_word(target, jump_size) && *segment.from(target).bytes.data() == 0xE9)
    return way_in{target, jump_size};
  return fail(errc::unsupported, "no room for a jump near a libc function");
}

std::uintptr_t target_of(const text& from, const instruction& seen) noexcept {
  return from.at + seen.length + static_cast<std::uintptr_t>(seen.raw.imm[0].value.s);
}

// Makes a short conditional jump on the opposite condition over a far jump.
code moved_condition(const instruction& seen, std::uintptr_t target) noexcept {
  code made;
  constexpr unsigned jcc = 0x70;
  add_number(made, static_cast<std::uint8_t>(jcc | ((seen.opcode & 0x0FU) ^ 1U)));
  add_number(made, static_cast<std::uint8_t>(far_jump_size));
  add(made, far_jump(target));
  return made;
}

// Makes call [rip+2]; jmp over the address. The call returns here: shadow stacks allow no other return address.
code moved_call(std::uintptr_t target) noexcept {
  code made;
  constexpr std::array<std::uint8_t, 8> call{0xFF, 0x15, 2, 0, 0, 0, 0xEB, 8};
  add(made, call);
  add_number(made, target);
  return made;
}

result<code> moved_branch(const text& from, const instruction& seen) noexcept {
  const auto target = target_of(from, seen);
  if (seen.mnemonic == ZYDIS_MNEMONIC_JMP) return far_jump(target);
  if (seen.mnemonic == ZYDIS_MNEMONIC_CALL) return moved_call(target);
  const bool on_flags = (seen.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && seen.opcode >> 4U == 7) ||
                        (seen.opcode_map == ZYDIS_OPCODE_MAP_0F && seen.opcode >> 4U == 8);
  if (seen.meta.category == ZYDIS_CATEGORY_COND_BR && on_flags) return moved_condition(seen, target);
  return fail(errc::unsupported, "a function begins with a branch that cannot be relocated");
}

result<code> moved_alone(const text& from, const instruction& seen, std::uintptr_t to) noexcept {
  if (seen.mnemonic == ZYDIS_MNEMONIC_INT3) return fail(errc::unsupported, "a function begins with a breakpoint");
  if (seen.raw.imm[0].is_relative != ZYAN_FALSE) return moved_branch(from, seen);
  code made;
  add(made, from.bytes.first(seen.length));
  if ((seen.attributes & ZYDIS_ATTRIB_IS_RELATIVE) == 0) return made;
  const auto shifted = seen.raw.disp.value + distance(to, from.at);
  if (seen.raw.disp.size != 32 || shifted != static_cast<std::int32_t>(shifted))
    return fail(errc::unsupported, "a function begins with a memory access that cannot be relocated");
  const auto disp = static_cast<std::int32_t>(shifted);
  PINFOLD_ASSERT(seen.raw.disp.offset + sizeof disp <= made.size, "the displacement is part of the instruction");
  std::memcpy(made.bytes.data() + seen.raw.disp.offset, &disp, sizeof disp);
  return made;
}

// Returns whether bytes that compilers put before a function precede `at`: fill bytes, or an earlier function's return.
bool behind_unused(const text& segment, std::uintptr_t at) noexcept {
  PINFOLD_ASSERT(segment.at + function_alignment <= at && at <= segment.end(), "bytes lie before the function");
  using namespace std::string_view_literals;
  constexpr std::array ends{"\xC3"sv,
                            "\xCC"sv,
                            "\x90"sv,
                            "\x0F\x1F\x00"sv,
                            "\x0F\x1F\x40\x00"sv,
                            "\x0F\x1F\x44\x00\x00"sv,
                            "\x0F\x1F\x80\x00\x00\x00\x00"sv,
                            "\x0F\x1F\x84\x00\x00\x00\x00\x00"sv};
  const auto* before = reinterpret_cast<const char*>(segment.bytes.data() + (at - segment.at - function_alignment));
  const std::string_view bytes(before, function_alignment);
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return bytes.ends_with(end); });
}

}  // namespace

result<way_in> find_way_in(const text& segment, std::uintptr_t entry, std::span<const range> taken,
                           is_left_over left_over) noexcept {
  if (entry < segment.at || entry >= segment.end())
    return fail(errc::unsupported, "a libc function is outside its library's code");
  instruction first;
  const bool guarded = decode(segment.from(entry), first) && first.mnemonic == ZYDIS_MNEMONIC_ENDBR64;
  const auto at = guarded ? entry + first.length : entry;
  auto found = way_at(segment, at, taken, left_over);
  if (!found)
    if (auto behind = way_behind(segment, at)) return behind;
  if (!found && guarded) return way_at(segment, entry, taken, left_over);  // no Linux process needs the ENDBR64 so far
  return found;
}

result<code> moved(const text& from, std::uintptr_t to, std::size_t at_least) noexcept {
  PINFOLD_ASSERT(at_least > 0, "an instruction at least is moved");
  code made;
  auto next = from.at;
  while (next < from.at + at_least) {
    instruction seen;
    const auto rest = from.from(next);
    if (!decode(rest, seen)) return fail(errc::unsupported, "cannot decode the first instructions of a function");
    next += seen.length;
    const bool branches = ends_flow(seen) || seen.raw.imm[0].is_relative != ZYAN_FALSE;
    if (branches && next < from.at + at_least)
      return fail(errc::unsupported, "a function branches too early for a jump");
    const auto one = moved_alone(rest, seen, to + made.size);
    if (!one) return one;
    if (made.size + one->size + far_jump_size > code::most)
      return fail(errc::unsupported, "the first instructions of a function are too long to be relocated");
    add(made, *one);
  }
  add(made, shortest_jump(to + made.size, next));
  return made;
}

// Reads byte by byte: the memory behind the instruction may not be mapped.
std::uintptr_t jump_target(const std::uint8_t* bytes, std::uintptr_t at) noexcept {
  constexpr std::array<std::uint8_t, 4> endbr64{0xF3, 0x0F, 0x1E, 0xFA};
  constexpr std::array<std::uint8_t, 6> indirect{0xFF, 0x25, 0, 0, 0, 0};
  const auto byte = [&](std::size_t i) { return static_cast<const volatile std::uint8_t*>(bytes)[i]; };
  const auto begins_with = [&](const auto& wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (byte(i) != wanted[i]) return false;
    return true;
  };
  const auto number = [&](std::size_t from, std::size_t size) {
    std::uint64_t read = 0;
    for (std::size_t i = 0; i < size; ++i) read |= std::uint64_t{byte(from + i)} << (8 * i);
    return read;
  };
  if (begins_with(endbr64)) return jump_target(bytes + endbr64.size(), at + endbr64.size());
  if (byte(0) == 0xE9) return at + jump_size + static_cast<std::uintptr_t>(static_cast<std::int32_t>(number(1, 4)));
  if (byte(0) == 0xEB)
    return at + short_jump_size + static_cast<std::uintptr_t>(static_cast<std::int8_t>(number(1, 1)));
  return begins_with(indirect) ? number(indirect.size(), sizeof(std::uint64_t)) : 0;
}

bool leads_away(const text& from) noexcept {
  constexpr int address_bits = 64;
  instruction seen;
  if (!decode(from, seen)) return false;
  return seen.meta.category == ZYDIS_CATEGORY_UNCOND_BR || seen.meta.category == ZYDIS_CATEGORY_CALL ||
         seen.raw.imm[0].size == address_bits;
}

std::uintptr_t begin_of_function(const text& segment, std::uintptr_t address) noexcept {
  constexpr std::size_t farthest = 64;
  const auto aligned = address / function_alignment * function_alignment;
  for (auto at = aligned; at > segment.at + function_alignment && address - at < farthest; at -= function_alignment) {
    if (!behind_unused(segment, at)) continue;
    auto here = at;
    for (instruction seen; here < address && decode(segment.from(here), seen);) here += seen.length;
    if (here == address) return at;
  }
  return 0;
}

bool reaches(std::uintptr_t from, std::uintptr_t to) noexcept {
  const auto far = distance(from + jump_size, to);
  return far == static_cast<std::int32_t>(far);
}

code jump(std::uintptr_t from, std::uintptr_t to) noexcept {
  PINFOLD_ASSERT(reaches(from, to), "the target of a jump is near");
  code made;
  add_number(made, std::uint8_t{0xE9});
  add_number(made, static_cast<std::int32_t>(distance(from + jump_size, to)));
  return made;
}

code short_jump(std::uintptr_t from, std::uintptr_t to) noexcept {
  PINFOLD_ASSERT(distance(from + short_jump_size, to) == static_cast<std::int8_t>(distance(from + short_jump_size, to)),
                 "the target of a short jump is within 127 bytes");
  code made;
  add_number(made, std::uint8_t{0xEB});
  add_number(made, static_cast<std::int8_t>(distance(from + short_jump_size, to)));
  return made;
}

code far_jump(std::uintptr_t to) noexcept {
  code made;
  constexpr std::array<std::uint8_t, 6> indirect{0xFF, 0x25, 0, 0, 0, 0};
  add(made, indirect);
  add_number(made, to);
  return made;
}

code shortest_jump(std::uintptr_t from, std::uintptr_t to) noexcept {
  constexpr std::uint8_t breakpoint = 0xCC;
  if (!reaches(from, to)) return far_jump(to);
  code made = jump(from, to);
  while (made.size < far_jump_size) add_number(made, breakpoint);
  return made;
}

}  // namespace pinfold::monitors::x86_64

#else

namespace pinfold::monitors::x86_64 {

namespace {
constexpr auto elsewhere = "hooks work only on x86-64, and with Zydis";
}

result<way_in> find_way_in(const text& /*segment*/, std::uintptr_t /*entry*/, std::span<const range> /*taken*/,
                           is_left_over /*left_over*/) noexcept {
  return fail(errc::unsupported, elsewhere);
}
result<code> moved(const text& /*from*/, std::uintptr_t /*to*/, std::size_t /*at_least*/) noexcept {
  return fail(errc::unsupported, elsewhere);
}
bool leads_away(const text& /*from*/) noexcept { return false; }
std::uintptr_t jump_target(const std::uint8_t* /*bytes*/, std::uintptr_t /*at*/) noexcept { return 0; }
std::uintptr_t begin_of_function(const text& /*segment*/, std::uintptr_t /*address*/) noexcept { return 0; }
bool reaches(std::uintptr_t /*from*/, std::uintptr_t /*to*/) noexcept { return false; }
code jump(std::uintptr_t /*from*/, std::uintptr_t /*to*/) noexcept { return {}; }
code short_jump(std::uintptr_t /*from*/, std::uintptr_t /*to*/) noexcept { return {}; }
code far_jump(std::uintptr_t /*to*/) noexcept { return {}; }
code shortest_jump(std::uintptr_t /*from*/, std::uintptr_t /*to*/) noexcept { return {}; }

}  // namespace pinfold::monitors::x86_64

#endif
