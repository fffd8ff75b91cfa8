// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The program and the libraries that the dynamic linker has loaded.
#pragma once

#include "os/procmap.hpp"

#include <string_view>

namespace pinfold::detail {

/// Returns whether a mapping is text or data of the program or of a loaded library: it lies where the dynamic linker
/// mapped an object, and maps that object's file. The name alone proves nothing: a data file may be called `x.so.db`.
///
/// Any thread; takes no lock (`_dl_find_object`, glibc 2.35). False if the C library lacks that.
[[nodiscard]] bool is_of_loaded_object(const procmap& mapping, std::string_view path) noexcept;

}  // namespace pinfold::detail

struct link_map;

namespace pinfold::os {

/// Keeps a loaded library from being unloaded, for good. Calls the dynamic linker, which takes its lock. Returns false
/// if that fails.
[[nodiscard]] bool keep_loaded(link_map* library) noexcept;

/// Keeps the library that contains this code loaded: a thread may still be in it when the program closes it.
[[nodiscard]] bool stay_loaded() noexcept;

}  // namespace pinfold::os
