// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/core_file.hpp"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <sys/procfs.h>

namespace pinfold::inspection {

namespace {

// If the number does not fit into the header, the first section header has it.
std::uint64_t count_of_segments(memory& file, const Elf64_Ehdr& header) noexcept {
  if (header.e_phnum != PN_XNUM) return header.e_phnum;
  Elf64_Shdr first{};
  return file.read(header.e_shoff, first) ? first.sh_info : 0;
}

std::uint64_t padded(std::uint64_t bytes) noexcept { return (bytes + 3) / 4 * 4; }

void read_notes(memory& file, std::uint64_t from, std::uint64_t until, core_file& into) {
  Elf64_Nhdr note{};
  for (auto at = from; at < until && file.read(at, note);) {
    const auto content = at + sizeof(note) + padded(note.n_namesz);
    prstatus_t thread{};
    prpsinfo_t process{};
    if (note.n_type == NT_PRSTATUS && file.read(content, thread)) into.running.ids.insert(thread.pr_pid);
    if (note.n_type == NT_PRPSINFO && file.read(content, process)) {
      into.process = process.pr_pid;
      into.command.assign(process.pr_fname, ::strnlen(process.pr_fname, sizeof(process.pr_fname)));
    }
    at = content + padded(note.n_descsz);
  }
}

}  // namespace

std::optional<core_file> read_core_file(memory& file) {
  Elf64_Ehdr header{};
  if (!file.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_CORE || header.e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  core_file found;
  std::vector<memory::part> parts;
  const auto count = count_of_segments(file, header);
  Elf64_Phdr one{};
  for (std::uint64_t number = 0; number < count; ++number) {
    if (!file.read(header.e_phoff + number * sizeof(one), one)) break;
    if (one.p_type == PT_NOTE) read_notes(file, one.p_offset, one.p_offset + one.p_filesz, found);
    if (one.p_type != PT_LOAD || one.p_filesz == 0 || one.p_vaddr + one.p_filesz < one.p_vaddr) continue;
    parts.push_back({one.p_vaddr, one.p_vaddr + one.p_filesz, one.p_offset});
    found.begins.push_back(one.p_vaddr);
  }
  if (parts.empty()) return std::nullopt;
  std::ranges::sort(parts, {}, &memory::part::begin);
  file.read_parts(std::move(parts));
  return found;
}

}  // namespace pinfold::inspection
