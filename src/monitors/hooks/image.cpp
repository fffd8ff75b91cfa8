// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/image.hpp"

#include <cstring>
#include <elf.h>
#include <link.h>
#include <span>

namespace pinfold::monitors {

namespace {

const ElfW(Ehdr) * header_at(std::uintptr_t base) noexcept {
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(base);
  return header != nullptr && std::memcmp(&header->e_ident[0], ELFMAG, SELFMAG) == 0 ? header : nullptr;
}

std::span<const ElfW(Phdr)> segments_of(std::uintptr_t base) noexcept {
  const auto* header = header_at(base);
  if (header == nullptr) return {};
  return {reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff), header->e_phnum};
}

std::uint32_t gnu_hash(std::string_view name) noexcept {
  std::uint32_t hash = 5381;
  for (const char each : name) hash = hash * 33 + static_cast<unsigned char>(each);
  return hash;
}

}  // namespace

loaded_image::loaded_image(std::uintptr_t base) noexcept : base_(base) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (const auto& segment : segments_of(base))
    if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + segment.p_vaddr);
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto at = place(dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_STRTAB: strings_ = reinterpret_cast<const char*>(at); break;
      case DT_SYMTAB: symbols_ = reinterpret_cast<const void*>(at); break;
      case DT_GNU_HASH: hash_ = reinterpret_cast<const std::uint32_t*>(at); break;
      case DT_VERSYM: versions_ = reinterpret_cast<const std::uint16_t*>(at); break;
      case DT_SONAME: soname_ = dynamic->d_un.d_val; break;
      default: break;
    }
  }
}

// glibc adds the base to these values in memory, unless the section is read-only.
std::uintptr_t loaded_image::place(std::uintptr_t value) const noexcept {
  return value < base_ ? base_ + value : value;
}

std::string_view loaded_image::name() const noexcept {
  return strings_ != nullptr && soname_ != 0 ? std::string_view(strings_ + soname_) : std::string_view{};
}

// The table of DT_GNU_HASH: numbers of buckets, first hashed symbol, words of the filter, its shift; the filter; the
// buckets; a chain for each, whose last element has the lowest bit set.
std::uintptr_t loaded_image::symbol(std::string_view name) const noexcept {
  constexpr std::uint16_t not_default = 0x8000;
  if (strings_ == nullptr || symbols_ == nullptr || hash_ == nullptr) return 0;
  const auto buckets = hash_[0], first = hash_[1], filter_words = hash_[2];
  const auto* bucket = hash_ + 4 + std::size_t{filter_words} * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const auto* chain = bucket + buckets;
  const auto hash = gnu_hash(name);
  auto number = buckets == 0 ? 0 : bucket[hash % buckets];
  if (number < first) return 0;
  for (;; ++number) {
    const auto& symbol = static_cast<const ElfW(Sym)*>(symbols_)[number];
    const bool usual = versions_ == nullptr || (versions_[number] & not_default) == 0;
    if ((chain[number - first] | 1U) == (hash | 1U) && usual && symbol.st_shndx != SHN_UNDEF &&
        name == strings_ + symbol.st_name)
      return base_ + symbol.st_value;
    if ((chain[number - first] & 1U) != 0) return 0;
  }
}

code_segment loaded_image::code_around(std::uintptr_t address) const noexcept {
  for (const auto& segment : segments_of(base_)) {
    const range at{base_ + segment.p_vaddr, base_ + segment.p_vaddr + segment.p_memsz};
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    if (address != 0 && (address < at.begin || address >= at.end)) continue;
    return {{{reinterpret_cast<const std::uint8_t*>(at.begin), at.size()}, at.begin}, segment.p_offset};
  }
  return {};
}

}  // namespace pinfold::monitors
