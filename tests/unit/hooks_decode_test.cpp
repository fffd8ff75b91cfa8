// SPDX-License-Identifier: BSD-3-Clause
// How the hooks decode and move machine code, on bytes made by hand.
#include "monitors/hooks/x86_64.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__x86_64__)

namespace pinfold::monitors::x86_64::hooks_decode_test {
namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::uintptr_t base = 0x7f0000001000;

bytes operator+(bytes left, const bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

const bytes endbr64{0xF3, 0x0F, 0x1E, 0xFA};
const bytes move_number{0xB8, 11, 0, 0, 0};   // mov $11,%eax
const bytes move_register{0x41, 0x89, 0xCA};  // mov %ecx,%r10d
const bytes system_call{0x0F, 0x05};
const bytes ret{0xC3};
const bytes nop5{0x0F, 0x1F, 0x44, 0, 0};
const bytes nop4{0x0F, 0x1F, 0x40, 0};

text at_base(const bytes& function) { return {function, base}; }

result<way_in> way(const bytes& function, std::span<const range> taken = {}) {
  return find_way_in(at_base(function), base, taken);
}

bytes moved_bytes(const bytes& from, std::uintptr_t to) {
  const auto made = moved(at_base(from), to);
  EXPECT_TRUE(made);
  return made ? bytes(made->bytes.begin(), made->bytes.begin() + static_cast<std::ptrdiff_t>(made->size)) : bytes{};
}

bytes far(std::uintptr_t to) {
  bytes made{0xFF, 0x25, 0, 0, 0, 0};
  for (unsigned i = 0; i < 8; ++i) made.push_back(static_cast<std::uint8_t>(to >> (8 * i)));
  return made;
}

bytes near(std::uintptr_t from, std::uintptr_t to) {
  bytes made{0xE9};
  for (unsigned i = 0; i < 4; ++i) made.push_back(static_cast<std::uint8_t>((to - from - jump_size) >> (8 * i)));
  made.resize(far_jump_size, 0xCC);
  return made;
}

TEST(hooks_decode, long_first_instruction_is_replaced) {
  const auto found = way(move_number + system_call + ret);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, base);
  EXPECT_EQ(found->length, 5U);
  EXPECT_TRUE(found->pad.empty());
}

TEST(hooks_decode, short_first_instruction_uses_fill_bytes_that_are_never_executed) {
  const auto found = way(move_register + move_number + system_call + ret + nop5 + ret);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->length, 3U);
  EXPECT_EQ(found->pad, (range{base + 11, base + 16}));
}

TEST(hooks_decode, executed_fill_bytes_are_not_used) {
  EXPECT_FALSE(way(move_register + nop5 + nop5 + ret + nop4 + ret)) << "run, or too few";
  EXPECT_TRUE(way(move_register + nop5 + nop5 + ret + nop4 + bytes{0x90} + ret));
  EXPECT_TRUE(way(move_register + bytes{0xEB, 0x05} + nop5 + ret)) << "jumped over";
  EXPECT_FALSE(way(move_register + bytes{0x74, 0x05} + nop5 + ret)) << "not always jumped over";
}

TEST(hooks_decode, pad_out_of_reach_is_refused) {
  const bytes much(140, 0xF8);  // clc
  EXPECT_FALSE(way(move_register + much + ret + nop5 + ret));
  const bytes less(120, 0xF8);
  EXPECT_TRUE(way(move_register + less + ret + nop5 + ret));
}

TEST(hooks_decode, pad_of_another_function_is_not_taken_again) {
  const auto function = move_register + ret + nop5 + ret + nop5 + nop5 + ret;
  const std::vector<range> taken{{base + 4, base + 9}};
  const auto found = way(function, taken);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pad, (range{base + 10, base + 20}));
}

TEST(hooks_decode, R38_jump_in_a_pad_lies_in_one_word_if_possible) {
  const bytes nop9{0x66, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0};
  const auto found = way(move_register + move_number + ret + nop9 + ret);  // unused from 9 to 18
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pad, (range{base + 9, base + 18}));
  EXPECT_EQ(found->hop, base + 9);
  const auto later = way(move_register + system_call + ret + nop9 + ret);  // from 6 to 15: a jump at 6 crosses words
  ASSERT_TRUE(later);
  EXPECT_EQ(later->pad, (range{base + 6, base + 15}));
  EXPECT_EQ(later->hop, base + 8);
}

TEST(hooks_decode, R38_jump_behind_a_short_jump_is_replaced_where_there_is_no_room) {
  const bytes jump{0xE9, 0, 1, 0, 0};
  const bytes rest = move_number + system_call + ret;  // 8 bytes
  const auto found = way(bytes{0xEB, 6} + bytes(6, 0xF8) + jump);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, base + 8);
  EXPECT_EQ(found->length, 5U);
  EXPECT_TRUE(found->pad.empty());
  EXPECT_FALSE(way(bytes{0xEB, 10} + bytes(10, 0xF8) + jump + rest)) << "across two words";
  EXPECT_FALSE(way(bytes{0xEB, 6} + bytes(6, 0xF8) + rest)) << "no jump";
}

TEST(hooks_decode, targets_of_jumps_are_decoded) {
  const auto target = [](const bytes& code) { return jump_target(code.data(), base); };
  EXPECT_EQ(target({0xE9, 0, 1, 0, 0}), base + 0x105);
  EXPECT_EQ(target({0xEB, 0xF0}), base - 14);
  EXPECT_EQ(target(far(0x123456789)), 0x123456789U);
  EXPECT_EQ(target(endbr64 + bytes{0xEB, 2}), base + 8);
  EXPECT_EQ(target(move_number), 0U);
  EXPECT_EQ(target({0xFF, 0x25, 8, 0, 0, 0}), 0U) << "an address elsewhere, which may change";
}

TEST(hooks_decode, R38_entry_after_endbr64_is_patched) {
  const auto found = way(endbr64 + move_register + move_number + system_call + ret + nop5 + ret);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, base + 4);
  // a long jump over `mov $11,%eax` would cross the aligned word; a short jump does not
  const auto crossing = way(endbr64 + move_number + system_call + ret + nop5 + ret);
  ASSERT_TRUE(crossing);
  EXPECT_EQ(crossing->at, base + 4);
  EXPECT_EQ(crossing->pad, (range{base + 12, base + 17}));
}

TEST(hooks_decode, endbr64_is_replaced_when_a_push_follows) {
  const auto found = way(endbr64 + bytes{0x55} + ret + nop5 + ret);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, base);
  EXPECT_EQ(found->length, 4U);
}

TEST(hooks_decode, unsupported_instructions_are_refused) {
  EXPECT_FALSE(way(bytes{0x55} + ret + nop5 + ret)) << "one byte";
  EXPECT_FALSE(way(bytes{0xCC} + ret + nop5 + ret)) << "a debugger's";
  EXPECT_FALSE(way(bytes{0x06} + ret + nop5 + ret)) << "no instruction";
  EXPECT_FALSE(find_way_in(at_base(move_number), base + 5, {})) << "outside";
  EXPECT_FALSE(moved(at_base({0xE3, 0x10}), base)) << "jrcxz";
  EXPECT_FALSE(moved(at_base({0xE2, 0x10}), base)) << "loop";
  EXPECT_FALSE(moved(at_base({0xC7, 0xF8, 0, 0, 0, 0}), base)) << "xbegin";
  EXPECT_FALSE(moved(at_base({0xCC}), base)) << "int3";
  EXPECT_FALSE(moved(at_base({0x48, 0x8B}), base)) << "half an instruction";
}

TEST(hooks_decode, plain_instruction_is_copied) {
  EXPECT_EQ(moved_bytes(move_number + ret, base + 0x1000), move_number + near(base + 0x1005, base + 5));
  EXPECT_EQ(moved_bytes(move_number + ret, base + (std::uintptr_t{1} << 33U)), move_number + far(base + 5));
}

TEST(hooks_decode, rip_relative_access_is_shifted) {
  const bytes access{0x48, 0x8B, 0x05, 0x10, 0, 0, 0};  // mov 0x10(%rip),%rax
  EXPECT_EQ(moved_bytes(access, base - 0x1000),
            (bytes{0x48, 0x8B, 0x05, 0x10, 0x10, 0, 0}) + near(base - 0x1000 + 7, base + 7));
  const bytes with_number{0x83, 0x3D, 0x10, 0, 0, 0, 7};  // cmpl $7,0x10(%rip)
  EXPECT_EQ(moved_bytes(with_number, base + 0x10), (bytes{0x83, 0x3D, 0, 0, 0, 0, 7}) + near(base + 0x17, base + 7));
  EXPECT_FALSE(moved(at_base(access), base + (std::uintptr_t{1} << 33U))) << "out of its reach";
}

TEST(hooks_decode, R38_jump_of_another_hook_is_kept) {
  EXPECT_EQ(moved_bytes({0xE9, 0x00, 0x01, 0, 0}, base + 0x5000), far(base + 0x105) + near(base + 0x500e, base + 5));
  EXPECT_EQ(moved_bytes({0xEB, 0xF0}, base + 0x5000), far(base - 14) + near(base + 0x500e, base + 2));
  const auto indirect = far(base + 0x1234);  // refers to its own data, so the offset is adjusted
  const bytes first(indirect.begin(), indirect.begin() + 6);
  EXPECT_EQ(moved_bytes(indirect, base + 0x100),
            (bytes{0xFF, 0x25, 0x00, 0xFF, 0xFF, 0xFF}) + near(base + 0x106, base + 6));
  EXPECT_TRUE(way(bytes{0xE9, 0, 1, 0, 0} + system_call + ret));
  const bytes by_register{0x49, 0xBB, 1, 2, 3, 4, 5, 6, 7, 8, 0x41, 0xFF, 0xE3};
  EXPECT_EQ(moved_bytes(by_register, base + 0x100),
            bytes(by_register.begin(), by_register.begin() + 10) + near(base + 0x10a, base + 10));
}

TEST(hooks_decode, R38_call_of_another_hook_is_kept) {
  bytes expected{0xFF, 0x15, 2, 0, 0, 0, 0xEB, 8};
  for (unsigned i = 0; i < 8; ++i) expected.push_back(static_cast<std::uint8_t>((base + 0x105) >> (8 * i)));
  EXPECT_EQ(moved_bytes({0xE8, 0x00, 0x01, 0, 0}, base + 0x5000), expected + near(base + 0x5010, base + 5));
}

TEST(hooks_decode, conditional_jumps_are_relocated) {
  EXPECT_EQ(moved_bytes({0x74, 0x10}, base + 0x5000),
            (bytes{0x75, 14}) + far(base + 0x12) + near(base + 0x5010, base + 2));
  EXPECT_EQ(moved_bytes({0x0F, 0x87, 0x00, 0x01, 0, 0}, base + 0x5000),
            (bytes{0x76, 14}) + far(base + 0x106) + near(base + 0x5010, base + 6));
}

bytes several_moved(const bytes& from, std::uintptr_t to) {
  const auto made = moved(at_base(from), to, jump_size);
  EXPECT_TRUE(made);
  return made ? bytes(made->bytes.begin(), made->bytes.begin() + static_cast<std::ptrdiff_t>(made->size)) : bytes{};
}

// The entries of cuIpcOpenMemHandle_v2: in the drivers of CUDA 12.4, and as reported of CUDA 12.9.
TEST(hooks_decode, as_many_instructions_are_moved_as_a_jump_covers) {
  const bytes compare{0x81, 0x3D, 0x36, 0x22, 0x8D, 0x01, 0x00, 0xBA, 0x1C, 0x32};  // cmpl $0x321cba00,0x18d2236(%rip)
  const bytes jump_to_hook{0x74, 0x0C};
  const bytes compare_there{0x81, 0x3D, 0x00, 0x00, 0x8D, 0x01, 0x00, 0xBA, 0x1C, 0x32};
  EXPECT_EQ(several_moved(compare + jump_to_hook, base + 0x2236), compare_there + near(base + 0x2240, base + 10));
  const bytes push_frame{0x55, 0x48, 0x89, 0xE5};  // push %rbp; mov %rsp,%rbp
  const bytes push_register{0x41, 0x54};           // push %r12
  const bytes make_room{0x48, 0x83, 0xEC, 0x08};   // sub $8,%rsp
  EXPECT_EQ(several_moved(push_frame + push_register + make_room, base + 0x1000),
            push_frame + push_register + near(base + 0x1006, base + 6));
  const bytes load{0x8B, 0x05, 0x10, 0, 0, 0};  // mov 0x10(%rip),%eax
  const bytes load_there{0x8B, 0x05, 0, 0, 0, 0};
  EXPECT_EQ(several_moved(push_register + load, base + 0x10), push_register + load_there + near(base + 0x18, base + 8));
}

TEST(hooks_decode, functions_that_a_jump_does_not_fit_into_are_refused) {
  EXPECT_FALSE(moved(at_base(bytes{0x31, 0xC0} + ret + nop5), base, jump_size)) << "ends";
  EXPECT_FALSE(moved(at_base(bytes{0x55, 0x74, 0x10} + nop5), base, jump_size)) << "branches";
  EXPECT_TRUE(moved(at_base(bytes{0x55, 0x90, 0x90, 0x74, 0x10}), base, jump_size)) << "as the last";
  EXPECT_FALSE(moved(at_base({0x55, 0x48, 0x89, 0xE5}), base, jump_size)) << "half of it is unknown";
  const bytes long_one{0x66, 0x66, 0x66, 0x66, 0x81, 0x84, 0x00, 1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(moved(at_base(nop4 + long_one + bytes(10, 0x90)), base, jump_size));
}

TEST(hooks_decode, first_instructions_of_hooks_are_recognized) {
  const auto away = [](const bytes& code) { return leads_away(at_base(code)); };
  EXPECT_TRUE(away({0xE9, 0, 0, 0, 0}));
  EXPECT_TRUE(away({0xEB, 0}));
  EXPECT_TRUE(away(far(base)));
  EXPECT_TRUE(away({0xE8, 0, 0, 0, 0}));
  EXPECT_TRUE(away({0x49, 0xBB, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_FALSE(away(move_number));
  EXPECT_FALSE(away(move_register));
}

TEST(hooks_decode, begin_of_a_function_without_a_symbol_is_found) {
  const bytes before = bytes(27, 0xF8) + nop5;  // 32 bytes
  const bytes function = move_register + bytes{0x41, 0xF7, 0xC1, 0xFF, 0x0F, 0, 0} + bytes{0x75, 0x14} + move_number;
  const auto all = before + function;
  EXPECT_EQ(begin_of_function(at_base(all), base + 32 + 12), base + 32);
  EXPECT_EQ(begin_of_function(at_base(all), base + 32 + 11), 0U) << "the middle of an instruction";
  const auto glued = bytes(32, 0xF8) + function;
  EXPECT_EQ(begin_of_function(at_base(glued), base + 32 + 12), 0U);
  const auto guarded = before + endbr64 + move_number;
  EXPECT_EQ(begin_of_function(at_base(guarded), base + 36), base + 32);
}

TEST(hooks_decode, jumps_reach_two_gibibytes) {
  EXPECT_TRUE(reaches(base, base + 0x7FFF0000));
  EXPECT_FALSE(reaches(base, base + 0x80010000));
  EXPECT_TRUE(reaches(base, base - 0x7FFF0000));
  const auto made = jump(base, base + 0x105);
  EXPECT_EQ(bytes(made.bytes.begin(), made.bytes.begin() + 5), (bytes{0xE9, 0x00, 0x01, 0, 0}));
  const auto little = short_jump(base, base + 2 + 127);
  EXPECT_EQ(bytes(little.bytes.begin(), little.bytes.begin() + 2), (bytes{0xEB, 0x7F}));
}

}  // namespace
}  // namespace pinfold::monitors::x86_64::hooks_decode_test

#endif
