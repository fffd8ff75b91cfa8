// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether valgrind runs the program.
#pragma once

#include <cstdlib>
#include <cstring>

namespace pinfold::os {

/// Returns whether valgrind runs this program. It runs one thread at a time, even while that thread waits in munmap(2)
/// for another one. Takes no lock: a child of fork(2) may call it, where the dynamic linker's lock may stay locked.
[[nodiscard]] inline bool under_valgrind() noexcept {
  const char* const preloaded = ::secure_getenv("LD_PRELOAD");
  return preloaded != nullptr && std::strstr(preloaded, "/vgpreload_") != nullptr;
}

}  // namespace pinfold::os
