// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/copies.hpp"

#include "monitors/hooks/image.hpp"
#include "os/check.hpp"
#include "os/file.hpp"
#include "os/loaded_object.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::monitors {

result<libc_copies> own_copy() noexcept {
  const auto found = find_functions();
  if (!found) return tl::unexpected(found.error());
  libc_copies made;
  made.all.front() = *found;
  made.bases.front() = libc_here().base();
  made.count = 1;
  return made;
}

#if defined(__GLIBC__) && defined(__x86_64__)

namespace {

// Returns where a mapping of a libc's start begins, or 0. A line: address-address permissions offset device inode path
std::uintptr_t begin_of_a_libc(std::string_view line) noexcept {
  const auto path = line.find('/');
  if (path == std::string_view::npos) return 0;
  const auto file = line.substr(line.rfind('/') + 1);
  if (!file.starts_with("libc.so") && !file.starts_with("libc-2.")) return 0;
  if (line.substr(0, path).find(" 00000000 ") == std::string_view::npos) return 0;
  std::uintptr_t begin = 0;
  std::from_chars(line.data(), line.data() + line.size(), begin, 16);
  return begin;
}

/// Calls `each` for the lines of /proc/thread-self/maps, without heap memory. Longer lines are cut off.
template <class F>
result<void> for_each_mapping(F&& each) noexcept {
  const os::file file(::open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(errc::unsupported, errno, "cannot search for copies of libc without /proc");
  std::array<char, 8192> buffer{};
  std::size_t held = 0;
  for (ssize_t got = 0; (got = ::read(file.number(), buffer.data() + held, buffer.size() - held)) > 0;) {
    held += static_cast<std::size_t>(got);
    PINFOLD_ASSERT(held <= buffer.size(), "the kernel fills no more than the buffer");
    std::string_view left(buffer.data(), held);
    for (auto end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
      each(left.substr(0, end));
      left.remove_prefix(end + 1);
    }
    held = left.size() == buffer.size() ? 0 : left.size();
    std::memmove(buffer.data(), left.data(), held);
  }
  return {};
}

// Returns the linker's entry of the library loaded there; null for a file that is only mapped to be read. Waits while
// the linker loads a library.
link_map* loaded_at(std::uintptr_t base) noexcept {
  Dl_info info{};
  link_map* map = nullptr;
  const bool known =
      ::dladdr1(reinterpret_cast<void*>(base), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  return known && map != nullptr && map->l_addr == base ? map : nullptr;
}

result<void> add(libc_copies& to, std::uintptr_t base) noexcept {
  PINFOLD_ASSERT(to.count > 0 && to.count <= copies_of_libc, "the program's own copy of libc comes first");
  if (std::find(to.bases.begin(), to.bases.end(), base) != to.bases.end()) return {};
  auto* const map = loaded_at(base);
  const loaded_image copy(map != nullptr ? base : 0);
  if (copy.name() != "libc.so.6") return {};
  if (to.count == copies_of_libc)
    return fail(errc::unsupported, "more copies of libc are loaded than can be hooked (dlmopen)");
  if (!os::keep_loaded(map)) return fail(errc::unsupported, "cannot keep another copy of libc loaded");
  auto found = find_functions_of(copy);
  if (!found) return tl::unexpected(found.error());
  to.all[to.count] = *found;
  to.bases[to.count++] = base;
  return {};
}

}  // namespace

result<libc_copies> with_new_copies(libc_copies known) noexcept {
  std::array<std::uintptr_t, 64> bases{};
  std::size_t count = 0;
  const auto read = for_each_mapping([&](std::string_view line) {
    const auto base = begin_of_a_libc(line);
    if (base != 0 && count < bases.size()) bases[count++] = base;
  });
  if (!read) return tl::unexpected(read.error());
  for (std::size_t i = 0; i < count; ++i)
    if (auto added = add(known, bases[i]); !added) return tl::unexpected(added.error());
  return known;
}

#else

result<libc_copies> with_new_copies(libc_copies known) noexcept { return known; }

#endif

}  // namespace pinfold::monitors
