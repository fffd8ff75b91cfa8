// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// UCX's memory hooks (libucm) in a test's process: another library that changes libc's functions, or the tables
/// through which libraries call them.
#pragma once

#include "support/processes/child_process.hpp"

#include <cstdlib>
#include <dlfcn.h>

namespace pinfold::testing {

enum class ucm_mode { bistro, reloc };

/// Loads libucs, which reads UCX's settings, and libucm, and subscribes to the events of UCX's own registration cache.
/// Returns false where libucm's hooks cannot be installed. Call it in a test's child: libucm stays.
inline bool load_ucm(ucm_mode mode) {
  using handler = void (*)(int, void*, void*);
  using set_handler = int(int, int, handler, void*);
  constexpr int mapped_and_unmapped = 3 << 16;
  ::setenv("UCX_MEM_MMAP_HOOK_MODE", mode == ucm_mode::bistro ? "bistro" : "reloc", 1);
  if (::dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL) == nullptr) return false;
  void* const ucm = ::dlopen("libucm.so.0", RTLD_NOW | RTLD_GLOBAL);
  if (ucm == nullptr) return false;
  auto* const set = reinterpret_cast<set_handler*>(::dlsym(ucm, "ucm_set_event_handler"));
  return set != nullptr && set(mapped_and_unmapped, 1000, [](int, void*, void*) {}, nullptr) == 0;
}

/// Returns whether libucm is installed. A child finds out, so this process does not load it.
inline bool ucm_is_here() {
  child_process asked([](line&) { return ::dlopen("libucm.so.0", RTLD_LAZY) != nullptr ? 0 : 1; });
  return asked.reap() == 0;
}

}  // namespace pinfold::testing
