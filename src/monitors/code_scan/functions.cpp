// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/functions.hpp"

#include "monitors/code_scan/own_memory.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <elf.h>
#include <span>
#include <string_view>

namespace pinfold::monitors::code_scan {

namespace {

// DWARF's names for the encodings of addresses.
constexpr std::uint8_t relative_sdata4 = 0x1B;  // relative to its own address
constexpr std::uint8_t count_udata4 = 0x03;
constexpr std::uint8_t table_relative_sdata4 = 0x3B;  // relative to the table's header
constexpr std::uint8_t form = 0x0F;

struct table_header {
  std::uint8_t version;
  std::uint8_t frames_encoding;
  std::uint8_t count_encoding;
  std::uint8_t table_encoding;
  std::int32_t frames;
  std::uint32_t count;
};

struct table_entry {
  std::int32_t begin;
  std::int32_t description;
};

std::uintptr_t moved_by(std::uintptr_t from, std::int64_t distance) noexcept {
  return from + static_cast<std::uintptr_t>(distance);
}

/// Where the code and the table are loaded, by the program headers.
struct loaded {
  std::uintptr_t base = 0;
  std::uintptr_t table = 0;
};

loaded loaded_with(const code_region& region) {
  loaded found;
  const auto elf = read_object<Elf64_Ehdr>(region.header);
  constexpr std::size_t most_headers = 1024;
  if (!elf || std::memcmp(&elf->e_ident[0], ELFMAG, SELFMAG) != 0 || elf->e_ident[EI_CLASS] != ELFCLASS64 ||
      elf->e_phentsize != sizeof(Elf64_Phdr) || elf->e_phnum > most_headers)
    return found;
  std::vector<Elf64_Phdr> headers(elf->e_phnum);
  if (!read_memory(region.header + elf->e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr))) return found;
  bool known = false;
  for (const auto& one : headers) {
    if (one.p_type != PT_LOAD || (one.p_flags & PF_X) == 0) continue;
    if (region.offset + region.at.size() <= one.p_offset || region.offset >= one.p_offset + one.p_filesz) continue;
    found.base = region.at.begin - region.offset + one.p_offset - one.p_vaddr;
    known = true;
  }
  for (const auto& one : headers)
    if (known && one.p_type == PT_GNU_EH_FRAME) found.table = found.base + one.p_vaddr;
  return found;
}

/// Reads the bytes of a description from left to right; past the end it reads zeros.
class cursor {
 public:
  explicit cursor(std::span<const std::uint8_t> bytes) noexcept : rest_(bytes) {}
  [[nodiscard]] std::uint8_t byte() noexcept {
    if (rest_.empty()) return 0;
    const auto found = rest_.front();
    rest_ = rest_.subspan(1);
    return found;
  }
  void skip_number() noexcept {
    constexpr unsigned more = 0x80;
    while ((byte() & more) != 0) {
    }
  }
  void skip(std::size_t bytes) noexcept { rest_ = rest_.subspan(std::min(bytes, rest_.size())); }

 private:
  std::span<const std::uint8_t> rest_;
};

std::size_t size_of_form(std::uint8_t encoding) noexcept {
  constexpr std::uint8_t absolute = 0, udata4 = 3, udata8 = 4, sdata4 = 0x0B, sdata8 = 0x0C;
  switch (encoding & form) {
    case udata4:
    case sdata4: return 4;
    case absolute:
    case udata8:
    case sdata8: return 8;
    default: return 0;
  }
}

// Returns the width of addresses in the descriptions that refer to this common one; 0 if it is unknown.
std::size_t width_in(std::uintptr_t common) noexcept {
  constexpr std::size_t before_version = 8;
  std::array<std::uint8_t, 48> bytes{};
  if (!read_memory(common, bytes.data(), bytes.size())) return 0;
  cursor at(std::span<const std::uint8_t>(bytes).subspan(before_version));
  const auto version = at.byte();
  std::array<char, 8> letters{};
  std::size_t count = 0;
  for (char one = 0; count < letters.size() && (one = static_cast<char>(at.byte())) != 0;) letters[count++] = one;
  const std::string_view augmentation(letters.data(), count);
  if (augmentation.empty()) return sizeof(std::uint64_t);
  if (augmentation.front() != 'z' || (version != 1 && version != 3)) return 0;
  at.skip_number();
  at.skip_number();
  version == 1 ? static_cast<void>(at.byte()) : at.skip_number();
  at.skip_number();
  for (const char letter : augmentation.substr(1)) {
    if (letter == 'R') return size_of_form(at.byte());
    if (letter == 'P') at.skip(size_of_form(at.byte()));
    if (letter == 'L') static_cast<void>(at.byte());
    if (letter != 'P' && letter != 'L' && letter != 'S' && letter != 'B') return 0;
  }
  return sizeof(std::uint64_t);
}

}  // namespace

function_table::function_table(const code_region& region) : code_(region.at), base_(region.at.begin - region.offset) {
  if (region.header == 0) return;
  const auto found = loaded_with(region);
  if (found.table == 0) return;
  base_ = found.base;
  read(found.table);
}

void function_table::read(std::uintptr_t header) {
  PINFOLD_ASSERT(entries_.empty(), "the table is read once");
  constexpr std::size_t most = 1U << 26U;
  const auto known = read_object<table_header>(header);
  if (!known || known->version != 1 || known->frames_encoding != relative_sdata4 ||
      known->count_encoding != count_udata4 || known->table_encoding != table_relative_sdata4 || known->count > most)
    return;
  std::vector<table_entry> table(known->count);
  if (!read_memory(header + sizeof(table_header), table.data(), table.size() * sizeof(table_entry))) return;
  entries_.reserve(table.size());
  for (const auto& one : table) entries_.push_back({moved_by(header, one.begin), moved_by(header, one.description)});
  std::sort(entries_.begin(), entries_.end(), [](const entry& a, const entry& b) { return a.begin < b.begin; });
}

range function_table::extent_of(const entry& known) const noexcept {
  struct front {
    std::uint32_t length;
    std::int32_t common;
  };
  const range none{known.begin, known.begin};
  const auto first = read_object<front>(known.description);
  if (!first || first->length == UINT32_MAX) return none;
  const auto width = width_in(known.description + sizeof first->length - static_cast<std::uintptr_t>(first->common));
  const auto size_at = known.description + sizeof(front) + width;
  if (width == sizeof(std::uint32_t))
    return {known.begin, known.begin + read_object<std::uint32_t>(size_at).value_or(0)};
  if (width == sizeof(std::uint64_t))
    return {known.begin, known.begin + read_object<std::uint64_t>(size_at).value_or(0)};
  return none;
}

function_table::piece function_table::around(std::uintptr_t address) const noexcept {
  PINFOLD_ASSERT(code_.begin <= address && address < code_.end, "the address lies in the region of the table");
  const auto next = std::upper_bound(entries_.begin(), entries_.end(), address,
                                     [](std::uintptr_t wanted, const entry& one) { return wanted < one.begin; });
  const auto end = next == entries_.end() ? code_.end : std::min(next->begin, code_.end);
  if (next == entries_.begin()) return {{code_.begin, end}, false};
  const auto last = extent_of(*std::prev(next));
  if (address < last.end && last.end <= code_.end) return {last, true};
  return {{std::max(std::min(last.end, address), code_.begin), end}, false};
}

}  // namespace pinfold::monitors::code_scan
