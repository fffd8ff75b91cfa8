// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/tables.hpp"

#include "debugging/table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <elf.h>
#include <optional>
#include <string>

namespace pinfold::inspection {

namespace {

constexpr std::size_t most_notes = 65536;  // bytes of one segment

// Returns the address of a mapping that may begin with an ELF header: readable, and mapped from offset 0 of a file.
std::optional<std::uintptr_t> begin_of_file(const std::string& line) {
  unsigned long begin = 0;
  unsigned long end = 0;
  unsigned long offset = 0;
  std::array<char, 5> rights{};
  // NOLINTNEXTLINE(cert-err34-c): the kernel writes these numbers
  if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx", &begin, &end, rights.data(), &offset) != 4) return std::nullopt;
  if (offset != 0 || rights[0] != 'r') return std::nullopt;
  return begin;
}

struct image {
  std::uintptr_t bias = 0;  ///< added to addresses in the file
  std::vector<Elf64_Phdr> segments;
};

std::optional<image> read_image(memory& in, std::uintptr_t begin) {
  Elf64_Ehdr header{};
  if (!in.read(begin, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > 256)
    return std::nullopt;
  image found;
  found.segments.resize(header.e_phnum);
  if (!in.read(begin + header.e_phoff, found.segments.data(), sizeof(Elf64_Phdr) * header.e_phnum)) return std::nullopt;
  const auto first = std::ranges::find_if(
      found.segments, [](const Elf64_Phdr& one) { return one.p_type == PT_LOAD && one.p_offset < 4096; });
  if (first == found.segments.end()) return std::nullopt;
  found.bias = begin - (first->p_vaddr - first->p_offset);
  return found;
}

// Calls `each(type, address of the content)` for notes with the library's name and 8 bytes of content.
template <class F>
void for_each_note(const std::vector<char>& notes, std::uintptr_t at, F&& each) {
  for (std::size_t offset = 0; notes.size() - offset >= sizeof(Elf64_Nhdr);) {
    Elf64_Nhdr note{};
    std::memcpy(&note, notes.data() + offset, sizeof(note));
    const auto name = offset + sizeof(note);
    const auto content = name + (std::uint64_t{note.n_namesz} + 3) / 4 * 4;
    const auto next = content + (std::uint64_t{note.n_descsz} + 3) / 4 * 4;
    if (next > notes.size()) return;
    if (note.n_namesz == sizeof(debugging::note_name) && note.n_descsz == 8 &&
        std::memcmp(notes.data() + name, debugging::note_name, sizeof(debugging::note_name)) == 0)
      each(note.n_type, at + content);
    offset = next;
  }
}

void add_tables(memory& in, const image& from, std::vector<std::uintptr_t>& to) {
  for (const auto& segment : from.segments) {
    if (segment.p_type != PT_NOTE || segment.p_memsz > most_notes) continue;
    std::vector<char> notes(segment.p_memsz);
    const auto at = from.bias + segment.p_vaddr;
    if (!in.read(at, notes.data(), notes.size())) continue;
    for_each_note(notes, at, [&](Elf64_Word type, std::uintptr_t content) {
      std::uint64_t distance = 0;
      if (type == debugging::note_type && in.read(content, distance)) to.push_back(content + distance);
    });
  }
}

}  // namespace

std::vector<std::uintptr_t> begins_of_files(std::istream& maps) {
  std::vector<std::uintptr_t> found;
  for (std::string line; std::getline(maps, line);)
    if (const auto begin = begin_of_file(line)) found.push_back(*begin);
  return found;
}

std::vector<std::uintptr_t> find_tables(memory& in, const std::vector<std::uintptr_t>& begins) {
  std::vector<std::uintptr_t> found;
  for (const auto begin : begins)
    if (const auto mapped = read_image(in, begin)) add_tables(in, *mapped, found);
  std::ranges::sort(found);
  const auto repeated = std::ranges::unique(found);
  found.erase(repeated.begin(), repeated.end());
  return found;
}

}  // namespace pinfold::inspection
