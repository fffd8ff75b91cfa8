// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The file of this process's page.
#pragma once

#include <pinfold/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace pinfold::observation {

/// A page in memory. Children of fork(2) inherit the mapping, and `replace` it.
struct mapped_file {
  std::string path;     ///< changed by `show`
  std::string process;  ///< the beginning of the names of this process's pages
  std::byte* memory = nullptr;
  std::uint64_t start_time = 0;  ///< of this process
  bool locked = false;           ///< whether this process has the file's lock until the memory is unmapped
};

/// Makes the file under a name that readers ignore, and maps it: readable and writable by this user only, in a folder
/// of this user. Locks it (flock(2)); the mapping keeps the lock, so that no descriptor stays open. Removes pages of
/// processes that ended, but for the newest 64 of the last hour; of many pages in the folder, it looks at 256 only.
/// Errors: `not_permitted`, and the system's. Throws `std::bad_alloc`.
[[nodiscard]] result<mapped_file> make_page_file();

/// Renames the file once it has a header, so that no reader takes it for damaged. The name has the first number that no
/// other copy of the library in this process uses. On one of the system's errors, the file and its mapping are gone.
/// Throws `std::bad_alloc`, and leaves both.
[[nodiscard]] result<void> show(mapped_file& made);

/// In a child of fork(2): maps memory of the child's own in the place of the parent's page, so that a call that the
/// fork interrupted can write there. The place is never free: other handlers of the fork may map memory.
void replace(std::byte* memory) noexcept;

/// Allocates memory for a part of the file: otherwise a write would raise SIGBUS on a full file system. Errors:
/// `out_of_resources` with ENOSPC, and the system's.
[[nodiscard]] result<void> fill(const std::string& path, std::size_t from, std::size_t bytes) noexcept;

}  // namespace pinfold::observation
