// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks_find.hpp"

#include "monitors/hooks_linker.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <span>

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

  /// Where its ELF header is: libraries begin with that. 0 if it cannot be told.
  [[nodiscard]] std::uintptr_t begin() const noexcept {
    const link_map* const known = map();
    return known != nullptr ? known->l_addr : 0;
  }

 private:
  [[nodiscard]] const link_map* map() const noexcept {
    const link_map* known = nullptr;
    const bool told = handle_ != nullptr && ::dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&known)) == 0;
    return told ? known : nullptr;
  }

  void* handle_;
};

struct code_segment {
  x86_64::text text;
  std::size_t offset = 0;  // in the file
};

// The executable segment that has `entry` in it, or any if that is 0. Not by dl_iterate_phdr: a child of fork(2) would
// wait for ever for its lock, if another thread of the parent's had that.
code_segment code_around(std::uintptr_t library_begin, std::uintptr_t entry) noexcept {
  const auto* elf = reinterpret_cast<const ElfW(Ehdr)*>(library_begin);
  if (elf == nullptr || std::memcmp(&elf->e_ident[0], ELFMAG, SELFMAG) != 0) return {};
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(library_begin + elf->e_phoff);
  for (const auto& header : std::span(headers, elf->e_phnum)) {
    const range at{library_begin + header.p_vaddr, library_begin + header.p_vaddr + header.p_memsz};
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    if (entry != 0 && (entry < at.begin || entry >= at.end)) continue;
    return {{{reinterpret_cast<const std::uint8_t*>(at.begin), at.size()}, at.begin}, header.p_offset};
  }
  return {};
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
    if (entry != 0) at(all, each.which) = {entry, code_around(libc.begin(), entry).text};
  }
  return {};
}

// Without its munmap, dlclose goes unseen. Its mmap only maps over what it has just reserved: not seeing it loses
// nothing.
result<void> find_in_linker(found_functions& all) noexcept {
  const library linker("ld-linux-x86-64.so.2");
  const auto code = code_around(linker.begin(), 0);
  if (code.text.bytes.empty()) return fail(errc::unsupported, "the dynamic linker cannot be found");
  const auto own = find_linker_functions(code.text, linker.file(), code.offset);
  at(all, function::linker_munmap) = {own.munmap, code.text};
  at(all, function::linker_mmap) = {own.mmap, code.text};
  if (own.munmap == 0) return fail(errc::unsupported, "the dynamic linker's own munmap cannot be found");
  return {};
}

}  // namespace

// A thread may be in a replacement when the last monitor is gone and the program closes this library.
result<void> stay_loaded() noexcept {
  static std::atomic<bool> done{false};
  if (done.load()) return {};
  Dl_info info{};
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(events::replacements().front());
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr)
    return fail(errc::unsupported, "the library that this is part of cannot be found");
  void* const handle = ::dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);  // "": the program
  if (handle == nullptr) return fail(errc::unsupported, "the library that this is part of cannot be kept loaded");
  ::dlclose(handle);
  done.store(true);
  return {};
}

namespace {

result<found_functions> find_anew() noexcept {
  found_functions all{};
  const library libc("libc.so.6");
  if (!libc) return fail(errc::unsupported, "no shared glibc in this process");
  if (auto named = find_named(libc, all); !named) return tl::unexpected(named.error());
  if (auto linked = find_in_linker(all); !linked) return tl::unexpected(linked.error());
  return all;
}

// Found once, as neither library ever goes. A child of fork(2) has it from its parent; if that was just writing it
// down, the child goes without.
enum class note : std::uint8_t { none, being_written, there };
std::atomic<note> noted{note::none};
found_functions noted_functions;

}  // namespace

result<found_functions> find_functions() noexcept {
  if (noted.load(std::memory_order_acquire) == note::there) return noted_functions;
  const auto found = find_anew();
  note none = note::none;
  if (found && noted.compare_exchange_strong(none, note::being_written)) {
    noted_functions = *found;
    noted.store(note::there, std::memory_order_release);
  }
  return found;
}

#else

result<void> stay_loaded() noexcept { return fail(errc::unsupported, "functions are hooked in glibc on x86-64 only"); }

result<found_functions> find_functions() noexcept {
  return fail(errc::unsupported, "functions are hooked in glibc on x86-64 only");
}

#endif

}  // namespace pinfold::monitors
