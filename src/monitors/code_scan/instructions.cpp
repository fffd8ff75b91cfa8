// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/instructions.hpp"

#if defined(__x86_64__) && !defined(PINFOLD_WITHOUT_ZYDIS)

#include <Zydis/Zydis.h>
#include <array>

namespace pinfold::monitors::code_scan {

namespace {

const ZydisDecoder& decoder() noexcept {
  static const ZydisDecoder made = [] {
    ZydisDecoder fresh;
    ZydisDecoderInit(&fresh, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return fresh;
  }();
  return made;
}

flow flow_of(const ZydisDecodedInstruction& seen) noexcept {
  const bool relative = seen.raw.imm[0].is_relative != ZYAN_FALSE;
  switch (seen.meta.category) {
    case ZYDIS_CATEGORY_COND_BR: return flow::branch;
    case ZYDIS_CATEGORY_UNCOND_BR: return relative ? flow::jump : flow::indirect_jump;
    case ZYDIS_CATEGORY_RET: return flow::end;
    default: break;
  }
  return seen.mnemonic == ZYDIS_MNEMONIC_HLT || seen.mnemonic == ZYDIS_MNEMONIC_UD2 ? flow::end : flow::next;
}

entry_by entry_of(const ZydisDecodedInstruction& seen) noexcept {
  constexpr unsigned gate = 0x80;
  switch (seen.mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL: return entry_by::syscall;
    case ZYDIS_MNEMONIC_SYSENTER: return entry_by::sysenter;
    case ZYDIS_MNEMONIC_INT: return (seen.raw.imm[0].value.u & UINT8_MAX) == gate ? entry_by::int80 : entry_by::nothing;
    default: return entry_by::nothing;
  }
}

constexpr general_register not_general = 16;

general_register number_of(ZydisRegister name) noexcept {
  const auto whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, name);
  if (whole < ZYDIS_REGISTER_RAX || whole > ZYDIS_REGISTER_R15) return not_general;
  return static_cast<general_register>(whole - ZYDIS_REGISTER_RAX);
}

bool kept_over_calls(general_register which) noexcept {
  constexpr general_register rbx = 3, rbp = 5, r12 = 12;
  return which == rbx || which == rbp || which >= r12;
}

bool changed_by_the_kernel(general_register which) noexcept {
  constexpr general_register rcx = 1, r11 = 11;
  return which == rax || which == rcx || which == r11;
}

using operands = std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT>;

bool writes(general_register which, const ZydisDecodedInstruction& seen, const operands& all) noexcept {
  for (std::size_t i = 0; i < seen.operand_count; ++i) {
    const auto& one = all[i];
    if (one.type == ZYDIS_OPERAND_TYPE_REGISTER && (one.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
        number_of(one.reg.value) == which)
      return true;
  }
  return false;
}

effect effect_of_write(const ZydisDecodedInstruction& seen, const operands& all) noexcept {
  constexpr unsigned half = 32;  // a shorter write leaves a part of the register unchanged
  const auto& to = all[0];
  const auto& from = all[1];
  const bool register_from = from.type == ZYDIS_OPERAND_TYPE_REGISTER && number_of(from.reg.value) != not_general;
  if (seen.operand_count_visible != 2 || to.size < half) return {effect::kind::unknown};
  if (seen.mnemonic == ZYDIS_MNEMONIC_MOV && from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
    return {effect::kind::constant, static_cast<std::uint32_t>(from.imm.value.u)};
  if (seen.mnemonic == ZYDIS_MNEMONIC_MOV && register_from && from.size >= half)
    return {effect::kind::copy, 0, number_of(from.reg.value)};
  const bool empties = seen.mnemonic == ZYDIS_MNEMONIC_XOR || seen.mnemonic == ZYDIS_MNEMONIC_SUB;
  if (empties && register_from && from.reg.value == to.reg.value) return {effect::kind::constant, 0};
  return {effect::kind::unknown};
}

}  // namespace

bool can_decode() noexcept { return true; }

std::optional<instruction> decode(const code_bytes& code) noexcept {
  ZydisDecodedInstruction seen;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder(), nullptr, code.bytes.data(), code.bytes.size(), &seen)))
    return std::nullopt;
  instruction made;
  made.at = code.at;
  made.length = seen.length;
  made.next = flow_of(seen);
  made.enters = entry_of(seen);
  made.is_privileged = (seen.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0 || seen.meta.category == ZYDIS_CATEGORY_IO ||
                       seen.meta.category == ZYDIS_CATEGORY_IOSTRINGOP;
  made.is_fill = seen.mnemonic == ZYDIS_MNEMONIC_NOP || seen.mnemonic == ZYDIS_MNEMONIC_INT3;
  if (seen.raw.imm[0].is_relative != ZYAN_FALSE)
    made.target = made.end() + static_cast<std::uintptr_t>(seen.raw.imm[0].value.s);
  return made;
}

std::vector<instruction> decode_all(const code_bytes& code) {
  std::vector<instruction> all;
  for (auto at = code.at; at < code.end();) {
    const auto one = decode(code.from(at));
    if (!one) break;
    all.push_back(*one);
    at = one->end();
  }
  return all;
}

effect effect_on(general_register which, const code_bytes& code) noexcept {
  ZydisDecodedInstruction seen;
  operands all;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), code.bytes.data(), code.bytes.size(), &seen, all.data())))
    return {effect::kind::unknown};
  if (seen.meta.category == ZYDIS_CATEGORY_CALL && !kept_over_calls(which)) return {effect::kind::unknown};
  if (entry_of(seen) != entry_by::nothing && changed_by_the_kernel(which)) return {effect::kind::unknown};
  return writes(which, seen, all) ? effect_of_write(seen, all) : effect{};
}

}  // namespace pinfold::monitors::code_scan

#else

namespace pinfold::monitors::code_scan {

bool can_decode() noexcept { return false; }
std::optional<instruction> decode(const code_bytes& /*code*/) noexcept { return std::nullopt; }
std::vector<instruction> decode_all(const code_bytes& /*code*/) { return {}; }
effect effect_on(general_register /*which*/, const code_bytes& /*code*/) noexcept { return {effect::kind::unknown}; }

}  // namespace pinfold::monitors::code_scan

#endif
