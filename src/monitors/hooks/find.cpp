// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/find.hpp"

#include "monitors/hooks/image.hpp"
#include "monitors/hooks/linker.hpp"
#include "os/check.hpp"

#include <array>
#include <atomic>
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace pinfold::monitors {

#if defined(__GLIBC__) && defined(__x86_64__)

namespace {

using events::function;

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
    name_of_function{function::sbrk, "sbrk"},
    name_of_function{function::shmat, "shmat"},
    name_of_function{function::shmdt, "shmdt"},
    name_of_function{function::remap_file_pages, "remap_file_pages"},
    name_of_function{function::syscall, "syscall"},
    name_of_function{function::mprotect, "mprotect"},
    name_of_function{function::pkey_mprotect, "pkey_mprotect", false},  // glibc 2.27
};

found_function& at(found_functions& all, function which) noexcept { return all[static_cast<std::size_t>(which)]; }

result<void> find_named(const loaded_image& libc, found_functions& all) noexcept {
  PINFOLD_ASSERT(static_cast<bool>(libc), "the library was found");
  for (const auto& each : names) {
    const auto entry = libc.symbol(each.name);
    if (entry == 0 && each.needed) return fail(errc::unsupported, "libc lacks a function that must be hooked");
    if (entry != 0) at(all, each.which) = {entry, libc.code_around(entry).text};
  }
  return {};
}

// Does not use dlopen, which other libraries replace.
loaded_image linker_here() noexcept {
  const auto from_kernel = ::getauxval(AT_BASE);  // 0 if the linker was started as the program
  const loaded_image found(from_kernel != 0 ? from_kernel : _r_debug.r_ldbase);
  return found.name().starts_with("ld-linux") ? found : loaded_image{};
}

// Without the linker's munmap, dlclose is not seen. The linker's mmap only maps over memory that the linker has just
// reserved, so missing it loses nothing.
result<void> find_in_linker(found_functions& all) noexcept {
  const auto linker = linker_here();
  const auto code = linker.code_around(0);
  if (code.text.bytes.empty()) return fail(errc::unsupported, "cannot find the dynamic linker");
  Dl_info info{};
  const bool named = ::dladdr(reinterpret_cast<const void*>(linker.base()), &info) != 0 && info.dli_fname != nullptr;
  const auto own = find_linker_functions(code.text, named ? info.dli_fname : "", code.offset);
  at(all, function::linker_munmap) = {own.munmap, code.text};
  at(all, function::linker_mmap) = {own.mmap, code.text};
  at(all, function::linker_mprotect) = {own.mprotect, code.text};
  if (own.munmap == 0) return fail(errc::unsupported, "cannot find the dynamic linker's own munmap");
  return {};
}

}  // namespace

// The version string lies in libc itself, while the address of a function may be that of the program's stub for it.
loaded_image libc_here() noexcept {
  Dl_info info{};
  if (::dladdr(::gnu_get_libc_version(), &info) == 0) return {};
  const loaded_image found(reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  return found.name() == "libc.so.6" ? found : loaded_image{};
}

result<found_functions> find_functions_of(const loaded_image& libc) noexcept {
  found_functions all{};
  if (auto named = find_named(libc, all); !named) return tl::unexpected(named.error());
  return all;
}

namespace {

result<found_functions> find_again() noexcept {
  const auto libc = libc_here();
  if (!libc) return fail(errc::unsupported, "this process has no shared glibc");
  auto all = find_functions_of(libc);
  if (!all) return all;
  if (auto linked = find_in_linker(*all); !linked) return tl::unexpected(linked.error());
  struct stat file{};
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(libc.base()), &info) != 0 && ::stat(info.dli_fname, &file) == 0)
    events::set_libc_file(file.st_dev, file.st_ino);
  events::set_heap_end(reinterpret_cast<const std::uintptr_t*>(libc.symbol("__curbrk")));
  return all;
}

// Found once, because neither library is ever unloaded. A child of fork(2) inherits the result, unless the fork
// happened while a thread wrote it; then the child searches each time.
enum class note : std::uint8_t { none, being_written, there };
std::atomic<note> noted{note::none};
found_functions noted_functions;

}  // namespace

result<found_functions> find_functions() noexcept {
  if (noted.load(std::memory_order_acquire) == note::there) return noted_functions;
  const auto found = find_again();
  note none = note::none;
  if (found && noted.compare_exchange_strong(none, note::being_written, std::memory_order_seq_cst)) {
    noted_functions = *found;
    noted.store(note::there, std::memory_order_release);
  }
  return found;
}

#else

loaded_image libc_here() noexcept { return {}; }

result<found_functions> find_functions_of(const loaded_image& /*libc*/) noexcept {
  return fail(errc::unsupported, "hooks work only in glibc on x86-64");
}

result<found_functions> find_functions() noexcept {
  return fail(errc::unsupported, "hooks work only in glibc on x86-64");
}

#endif

}  // namespace pinfold::monitors
