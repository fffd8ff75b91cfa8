// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether valgrind runs the program.
#pragma once

#include <cstddef>
#include <cstring>
#include <link.h>

namespace pinfold::os {

/// Returns whether valgrind runs this program. It runs one thread at a time, also while that thread waits in munmap(2)
/// for another one.
[[nodiscard]] inline bool under_valgrind() noexcept {
  const auto is_its = [](::dl_phdr_info* one, std::size_t, void*) {
    return one->dlpi_name != nullptr && std::strstr(one->dlpi_name, "/vgpreload_") != nullptr ? 1 : 0;
  };
  return ::dl_iterate_phdr(is_its, nullptr) != 0;
}

}  // namespace pinfold::os
