// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks_find.hpp"

#include "monitors/hooks_linker.hpp"

#include <atomic>
#include <dlfcn.h>
#include <link.h>

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

  [[nodiscard]] const char* file() const noexcept {
    const link_map* const known = map();
    return known != nullptr ? known->l_name : "";
  }

  /// An address that only it has something at. 0 if that cannot be told.
  [[nodiscard]] std::uintptr_t inside() const noexcept {
    const link_map* const known = map();
    return known != nullptr ? reinterpret_cast<std::uintptr_t>(known->l_ld) : 0;
  }

 private:
  [[nodiscard]] const link_map* map() const noexcept {
    const link_map* known = nullptr;
    const bool told = handle_ != nullptr && ::dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&known)) == 0;
    return told ? known : nullptr;
  }

  void* handle_;
};

template <class F>
void for_each_segment(const dl_phdr_info& of, F&& each) {
  for (const auto& header : std::span(of.dlpi_phdr, of.dlpi_phnum))
    if (header.p_type == PT_LOAD)
      each(header, range{of.dlpi_addr + header.p_vaddr, of.dlpi_addr + header.p_vaddr + header.p_memsz});
}

struct code_segment {
  x86_64::text text;
  std::size_t offset = 0;  // in the file
};

struct search {
  std::uintptr_t inside;  // of the module whose code is wanted
  std::uintptr_t entry;   // in the segment that is wanted; 0: any
  code_segment result;
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
    looked.result = {{{reinterpret_cast<const std::uint8_t*>(at.begin), at.size()}, at.begin}, header.p_offset};
  });
  return 1;
}

code_segment code_around(std::uintptr_t inside, std::uintptr_t entry) noexcept {
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
    if (entry != 0) at(all, each.which) = {entry, code_around(entry, entry).text};
  }
  return {};
}

// Found once: with our own jumps in them they are harder to know.
std::atomic<std::uintptr_t> known_munmap{0};
std::atomic<std::uintptr_t> known_mmap{0};

// Without its munmap, dlclose goes unseen. Its mmap only maps over what it has just reserved: not seeing it loses
// nothing.
result<void> find_in_linker(found_functions& all) noexcept {
  const library linker("ld-linux-x86-64.so.2");
  const auto inside = linker.inside();
  if (inside == 0) return fail(errc::unsupported, "the dynamic linker cannot be found");
  const auto code = code_around(inside, 0);
  if (known_munmap.load() == 0) {
    const auto own = find_linker_functions(code.text, linker.file(), code.offset);
    known_mmap.store(own.mmap);
    known_munmap.store(own.munmap);
  }
  at(all, function::linker_munmap) = {known_munmap.load(), code.text};
  at(all, function::linker_mmap) = {known_mmap.load(), code.text};
  if (known_munmap.load() == 0) return fail(errc::unsupported, "the dynamic linker's own munmap cannot be found");
  return {};
}

}  // namespace

// A thread may be in a replacement when the last monitor is gone and the program closes this library.
result<void> stay_loaded() noexcept {
  Dl_info info{};
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(events::replacements().front());
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr)
    return fail(errc::unsupported, "the library that this is part of cannot be found");
  void* const handle = ::dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);  // "": the program
  if (handle == nullptr) return fail(errc::unsupported, "the library that this is part of cannot be kept loaded");
  ::dlclose(handle);
  return {};
}

result<found_functions> find_functions() noexcept {
  found_functions all{};
  const library libc("libc.so.6");
  if (!libc) return fail(errc::unsupported, "no shared glibc in this process");
  if (auto named = find_named(libc, all); !named) return tl::unexpected(named.error());
  if (auto linked = find_in_linker(all); !linked) return tl::unexpected(linked.error());
  return all;
}

#else

result<void> stay_loaded() noexcept { return fail(errc::unsupported, "functions are hooked in glibc on x86-64 only"); }

result<found_functions> find_functions() noexcept {
  return fail(errc::unsupported, "functions are hooked in glibc on x86-64 only");
}

#endif

}  // namespace pinfold::monitors
