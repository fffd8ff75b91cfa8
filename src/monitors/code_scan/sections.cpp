// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/sections.hpp"

#include "monitors/code_scan/own_memory.hpp"
#include "os/file.hpp"

#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

namespace pinfold::monitors::code_scan {

namespace {

bool read_at(const os::file& file, std::uint64_t offset, void* into, std::size_t bytes) noexcept {
  return file && ::pread(file.number(), into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// Compares the headers: the path may refer to another file by now, and device numbers differ in overlays.
bool is_loaded_from(const os::file& file, const Elf64_Ehdr& elf, std::uintptr_t header) {
  constexpr std::size_t most = 1024;
  Elf64_Ehdr in_file{};
  if (!read_at(file, 0, &in_file, sizeof in_file) || std::memcmp(&in_file, &elf, sizeof elf) != 0 || elf.e_phnum > most)
    return false;
  const auto bytes = elf.e_phnum * sizeof(Elf64_Phdr);
  const auto loaded = read_bytes({header + elf.e_phoff, header + elf.e_phoff + bytes});
  std::vector<std::uint8_t> written(bytes);
  return read_at(file, elf.e_phoff, written.data(), bytes) && loaded == written;
}

}  // namespace

std::vector<range> code_sections(const code_region& region, std::uintptr_t base) {
  std::vector<range> whole{region.at};
  const auto elf = region.header == 0 ? std::nullopt : read_object<Elf64_Ehdr>(region.header);
  if (!elf || std::memcmp(&elf->e_ident[0], ELFMAG, SELFMAG) != 0 || elf->e_shentsize != sizeof(Elf64_Shdr))
    return whole;
  const os::file file(::open(region.path.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<Elf64_Shdr> sections(elf->e_shnum);
  if (!is_loaded_from(file, *elf, region.header) ||
      !read_at(file, elf->e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr)))
    return whole;
  std::vector<range> found;
  for (const auto& one : sections) {
    if ((one.sh_flags & SHF_EXECINSTR) == 0 || one.sh_type == SHT_NOBITS) continue;
    const range at{base + one.sh_addr, base + one.sh_addr + one.sh_size};
    if (at.overlaps(region.at)) found.push_back(at);
  }
  return found.empty() ? whole : found;
}

}  // namespace pinfold::monitors::code_scan
