// SPDX-License-Identifier: BSD-3-Clause
// A library with data, for tests that unload it, and a function that unmaps, for tests that look for its name.
#include <cstddef>
#include <sys/mman.h>

extern "C" {
[[gnu::visibility("default")]] alignas(4096) char unloadable_data[65536] = {1};
[[gnu::visibility("default")]] void unloadable_unmaps(void* memory, std::size_t bytes) {
  ::munmap(memory, bytes);
  asm volatile("");  // no tail call: the frame stays
}
}
