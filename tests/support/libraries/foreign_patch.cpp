// SPDX-License-Identifier: BSD-3-Clause
// A library that changes libc's functions beside pinfold, as some libraries do: it puts a jump of its own over munmap's
// entry, to code that enters the kernel by itself, or puts back the bytes that it found when it was loaded.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using entry_word = std::atomic<std::uint64_t>;

// libc's own: a sanitizer puts a function of the program before it.
entry_word* entry() {
  static void* const found = ::dlsym(::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "munmap");
  return static_cast<entry_word*>(found);
}

const std::uint64_t as_loaded = entry()->load();

#if defined(__x86_64__)
int unmap_inline(void* at, std::size_t bytes) {
  long answer = SYS_munmap;
  asm volatile("syscall" : "+a"(answer) : "D"(at), "S"(bytes) : "rcx", "r11", "memory");
  return answer == 0 ? 0 : -1;
}
#endif

bool write_entry(std::uint64_t word) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(entry()) / page * page;
  constexpr int writable = PROT_READ | PROT_WRITE | PROT_EXEC;
  if (::mprotect(reinterpret_cast<void*>(begin), page, writable) != 0) return false;
  entry()->store(word);
  return ::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_EXEC) == 0;
}

}  // namespace

extern "C" {

/// Returns false where it cannot patch: another processor, code that may not be changed, libc too far away.
[[gnu::visibility("default")]] bool foreign_patch_cover() {
#if defined(__x86_64__)
  const auto after = reinterpret_cast<std::intptr_t>(entry()) + 5;
  const auto distance = reinterpret_cast<std::intptr_t>(&unmap_inline) - after;
  if (distance != static_cast<std::int32_t>(distance)) return false;
  auto word = entry()->load();
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&word);
  const auto relative = static_cast<std::int32_t>(distance);
  bytes[0] = 0xe9;
  std::memcpy(bytes + 1, &relative, sizeof relative);
  return write_entry(word);
#else
  return false;
#endif
}

[[gnu::visibility("default")]] bool foreign_patch_put_back() { return write_entry(as_loaded); }
}
