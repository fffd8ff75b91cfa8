// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/sections.hpp"

#include "monitors/code_scan/own_memory.hpp"

#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

namespace pinfold::monitors::code_scan {

namespace {

class open_file {
 public:
  explicit open_file(const char* path) noexcept : number_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] bool read(std::uint64_t offset, void* into, std::size_t bytes) const noexcept {
    return number_ >= 0 && ::pread(number_, into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }

 private:
  int number_;
};

// Compares the headers: the path may name another file by now, and device numbers differ in overlays.
bool is_loaded_from(const open_file& file, const Elf64_Ehdr& elf, std::uintptr_t header) {
  constexpr std::size_t most = 1024;
  Elf64_Ehdr in_file{};
  if (!file.read(0, &in_file, sizeof in_file) || std::memcmp(&in_file, &elf, sizeof elf) != 0 || elf.e_phnum > most)
    return false;
  const auto bytes = elf.e_phnum * sizeof(Elf64_Phdr);
  const auto loaded = read_bytes({header + elf.e_phoff, header + elf.e_phoff + bytes});
  std::vector<std::uint8_t> written(bytes);
  return file.read(elf.e_phoff, written.data(), bytes) && loaded == written;
}

}  // namespace

std::vector<range> code_sections(const code_region& region, std::uintptr_t base) {
  std::vector<range> whole{region.at};
  const auto elf = region.header == 0 ? std::nullopt : read_object<Elf64_Ehdr>(region.header);
  if (!elf || std::memcmp(&elf->e_ident[0], ELFMAG, SELFMAG) != 0 || elf->e_shentsize != sizeof(Elf64_Shdr))
    return whole;
  const open_file file(region.path.c_str());
  std::vector<Elf64_Shdr> sections(elf->e_shnum);
  if (!is_loaded_from(file, *elf, region.header) ||
      !file.read(elf->e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr)))
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
