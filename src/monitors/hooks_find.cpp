// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks_find.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <functional>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>

namespace pinfold::monitors {

#if defined(__GLIBC__) && defined(__x86_64__)

namespace {

using events::function;

/// A library that is there, without keeping it. Null when it is not, as in static programs.
class library {
 public:
  explicit library(const char* name) noexcept : handle_(::dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  ~library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }

  [[nodiscard]] std::uintptr_t function_named(const char* name) const noexcept {
    return reinterpret_cast<std::uintptr_t>(::dlsym(handle_, name));
  }

  /// An address that only it has something at. 0 if that cannot be told.
  [[nodiscard]] std::uintptr_t inside() const noexcept {
    const link_map* map = nullptr;
    const bool told = handle_ != nullptr && ::dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0;
    return told ? reinterpret_cast<std::uintptr_t>(map->l_ld) : 0;
  }

 private:
  void* handle_;
};

template <class F>
void for_each_segment(const dl_phdr_info& of, F&& each) {
  for (const auto& header : std::span(of.dlpi_phdr, of.dlpi_phnum))
    if (header.p_type == PT_LOAD)
      each(header, range{of.dlpi_addr + header.p_vaddr, of.dlpi_addr + header.p_vaddr + header.p_memsz});
}

struct search {
  std::uintptr_t inside;  // of the module whose code is wanted
  std::uintptr_t entry;   // in the segment that is wanted; 0: any
  x86_64::text result;
};

int look_at_module(dl_phdr_info* module, std::size_t /*size*/, void* wanted) {
  auto& looked = *static_cast<search*>(wanted);
  bool mine = false;
  for_each_segment(*module, [&](const auto& /*header*/, const range& at) {
    mine = mine || (at.begin <= looked.inside && looked.inside < at.end);
  });
  if (!mine) return 0;
  for_each_segment(*module, [&](const auto& header, const range& at) {
    if ((header.p_flags & PF_X) == 0) return;
    if (looked.entry != 0 && (looked.entry < at.begin || looked.entry >= at.end)) return;
    looked.result = {{reinterpret_cast<const std::uint8_t*>(at.begin), at.size()}, at.begin};
  });
  return 1;
}

x86_64::text code_around(std::uintptr_t inside, std::uintptr_t entry) noexcept {
  search looked{inside, entry, {}};
  ::dl_iterate_phdr(look_at_module, &looked);
  return looked.result;
}

struct name_of_function {
  function which;
  const char* name;
  bool needed = true;
};
constexpr std::array names{
    name_of_function{function::munmap, "munmap"},
    name_of_function{function::mmap, "mmap"},
    name_of_function{function::mremap, "mremap"},
    name_of_function{function::madvise, "madvise"},
    name_of_function{function::posix_madvise, "posix_madvise"},
    name_of_function{function::process_madvise, "process_madvise", false},  // glibc 2.36
    name_of_function{function::brk, "brk"},
    name_of_function{function::shmat, "shmat"},
    name_of_function{function::shmdt, "shmdt"},
    name_of_function{function::remap_file_pages, "remap_file_pages"},
    name_of_function{function::syscall, "syscall"},
};

found_function& at(found_functions& all, function which) noexcept { return all[static_cast<std::size_t>(which)]; }

result<void> find_named(const library& libc, found_functions& all) noexcept {
  for (const auto& each : names) {
    const auto entry = libc.function_named(each.name);
    if (entry == 0 && each.needed) return fail(errc::unsupported, "libc lacks a function that has to be hooked");
    if (entry != 0) at(all, each.which) = {entry, code_around(entry, entry)};
  }
  return {};
}

// mov $number,%eax; syscall
found_function find_caller(const x86_64::text& code, std::uint8_t number) noexcept {
  const std::array<std::uint8_t, 7> wanted{0xB8, number, 0, 0, 0, 0x0F, 0x05};
  const std::boyer_moore_horspool_searcher searcher(wanted.begin(), wanted.end());
  const auto& bytes = code.bytes;
  const auto found = std::search(bytes.begin(), bytes.end(), searcher);
  if (found == bytes.end()) return {};
  const auto entry = x86_64::begin_of_function(code, code.at + static_cast<std::size_t>(found - bytes.begin()));
  return {entry, code};
}

// Without its munmap, dlclose goes unseen. Its mmap only maps over what it has just reserved: not seeing it loses
// nothing.
result<void> find_in_linker(found_functions& all) noexcept {
  const library linker("ld-linux-x86-64.so.2");
  const auto inside = linker.inside();
  if (inside == 0) return fail(errc::unsupported, "the dynamic linker cannot be found");
  const auto code = code_around(inside, 0);
  at(all, function::linker_munmap) = find_caller(code, SYS_munmap);
  at(all, function::linker_mmap) = find_caller(code, SYS_mmap);
  if (at(all, function::linker_munmap).entry == 0)
    return fail(errc::unsupported, "the dynamic linker's own munmap cannot be found");
  return {};
}

}  // namespace

result<found_functions> find_functions() noexcept {
  found_functions all{};
  const library libc("libc.so.6");
  if (!libc) return fail(errc::unsupported, "no shared glibc in this process");
  if (auto named = find_named(libc, all); !named) return tl::unexpected(named.error());
  if (auto linked = find_in_linker(all); !linked) return tl::unexpected(linked.error());
  return all;
}

#else

result<found_functions> find_functions() noexcept {
  return fail(errc::unsupported, "functions are hooked in glibc on x86-64 only");
}

#endif

}  // namespace pinfold::monitors
