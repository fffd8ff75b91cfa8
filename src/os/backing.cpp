// SPDX-License-Identifier: BSD-3-Clause
#include "os/backing.hpp"

#include "os/file.hpp"
#include "os/loaded_object.hpp"
#include "os/procmap.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace pinfold::detail {

namespace {

bool seals_hold(int file) noexcept {
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
}

bool is_mapping_of(const procmap& here, int file) noexcept {
  struct stat seen{};
  return file >= 0 && ::fstat(file, &seen) == 0 && seen.st_ino == here.inode &&
         major(seen.st_dev) == here.device_major && minor(seen.st_dev) == here.device_minor;
}

// For anonymous memory in huge pages the kernel makes a file on a mount of its own, with a name that no other file
// there has. Another file may have the name, but not the device.
bool is_anonymous_huge_memory(const procmap& here, std::string_view path) noexcept {
  constexpr unsigned size_shift = 26;  // MFD_HUGE_SHIFT
  if (here.shared || here.page_bytes == 0 || !path.starts_with("/anon_hugepage")) return false;
  const auto size = static_cast<unsigned>(std::countr_zero(here.page_bytes));
  const os::file same_mount(::memfd_create("pinfold", MFD_CLOEXEC | MFD_HUGETLB | size << size_shift));
  struct stat seen{};
  return same_mount && ::fstat(same_mount.number(), &seen) == 0 && major(seen.st_dev) == here.device_major &&
         minor(seen.st_dev) == here.device_minor;
}

// A System V segment's inode is its id, and the first id is 0, so the inode alone proves nothing.
bool is_own(const procmap& here, std::string_view path) noexcept {
  return here.is_anonymous() || is_anonymous_huge_memory(here, path);
}

backing backing_of_one(const procmap& here, std::string_view path, int file) noexcept {
  if (is_own(here, path)) return backing::own;
  if (is_mapping_of(here, file) && seals_hold(file)) return backing::sealed;
  return !here.shared && is_of_loaded_object(here, path) ? backing::program : backing::shared;
}

// One line: 7f00-7f10 rw-p 00000000 00:01 1234   /path
struct line_of_maps {
  procmap here;
  std::string_view path;
};
bool parse(std::string_view line, line_of_maps& into) noexcept {
  std::array<char, 5> flags{};
  int path_at = 0;
  std::array<char, 128> head{};
  line.copy(head.data(), head.size() - 1);
  unsigned long inode = 0;
  if (std::sscanf(head.data(), "%lx-%lx %4s %*x %x:%x %lu %n", &into.here.begin, &into.here.end, flags.data(),
                  &into.here.device_major, &into.here.device_minor, &inode, &path_at) < 6)
    return false;
  into.here.inode = inode;
  into.here.shared = flags[3] == 's';
  into.path = line.substr(std::min<std::size_t>(static_cast<std::size_t>(path_at), line.size()));
  return true;
}

backing stronger(backing a, backing b) noexcept { return std::max(a, b); }

// Reads the list before Linux 6.11. Opens it again, since the read position belongs to the descriptor.
backing from_the_whole_list(const range& memory, int file) noexcept {
  std::FILE* const maps = std::fopen("/proc/thread-self/maps", "re");
  if (maps == nullptr) return backing::unknown;
  backing found = backing::own;
  bool empty = true;
  std::array<char, 4608> text{};
  while (std::fgets(text.data(), static_cast<int>(text.size()), maps) != nullptr) {
    empty = false;
    std::string_view line(text.data());
    if (line.ends_with('\n')) line.remove_suffix(1);
    line_of_maps one;
    if (!parse(line, one)) continue;
    if (one.here.begin >= memory.end) break;
    if (one.here.end > memory.begin) found = stronger(found, backing_of_one(one.here, one.path, file));
  }
  std::fclose(maps);
  return empty ? backing::unknown : found;
}

}  // namespace

backing backing_of(const range& memory, int file) noexcept {
  const own_maps maps;
  std::array<char, 4096> path;
  path[0] = '\0';
  backing found = backing::own;
  for (auto at = memory.begin; at < memory.end;) {
    auto here = mapping_at(maps, at);
    if (!here && errno == ENOENT) return found;  // the registrar handles holes
    if (!here) return from_the_whole_list(memory, file);
    const bool has_path = !here->is_anonymous();
    if (has_path) here = mapping_at(maps, at, path);
    if (!here) return backing::unknown;  // the mapping is gone by now
    found = stronger(found, backing_of_one(*here, has_path ? path.data() : std::string_view(), file));
    at = here->end;
  }
  return found;
}

result<void> check_file(const range& memory, int file) noexcept {
  struct stat seen{};
  if (::fstat(file, &seen) != 0)
    return fail_errno(errc::invalid_argument, errno, "acquire_options::file is not an open descriptor");
  if (!S_ISREG(seen.st_mode) && !S_ISCHR(seen.st_mode) && !S_ISBLK(seen.st_mode))
    return fail(errc::invalid_argument, "acquire_options::file is not the descriptor of a file");
  if (::fcntl(file, F_GET_SEALS) < 0) return {};
  const own_maps maps;
  for (auto at = memory.begin; at < memory.end;) {
    const auto here = mapping_at(maps, at);
    if (!here) return {};  // the registrar handles holes; before Linux 6.11 the kernel does not report them
    if (!is_mapping_of(*here, file))
      return fail(errc::invalid_argument, "acquire_options::file is not the file that is mapped at the range");
    at = here->end;
  }
  return {};
}

}  // namespace pinfold::detail
