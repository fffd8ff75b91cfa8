// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The file of this process's page.
#pragma once

#include <pinfold/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace pinfold::observation {

/// A page in memory. The mapping is not inherited by children of fork(2).
struct mapped_file {
  std::string path;     ///< changed by `show`
  std::string process;  ///< the beginning of the names of this process's pages
  std::byte* memory = nullptr;
  std::uint64_t start_time = 0;  ///< of this process
  bool locked = false;           ///< whether this process has the file's lock until the memory is unmapped
};

/// Makes the file under a name that readers do not look at, and maps it: readable and writable by this user only, in a
/// folder of this user. Removes the pages of processes that ended more than an hour ago. Errors: `not_permitted`, and
/// the system's. Throws `std::bad_alloc`.
[[nodiscard]] result<mapped_file> make_page_file();

/// Gives the file its name, once it has a header: so that no reader takes it for damaged. The name has the first number
/// that no other copy of the library in this process uses. On an error, the system's, the file and its mapping are
/// gone. Throws `std::bad_alloc`, and leaves both.
[[nodiscard]] result<void> show(mapped_file& made);

/// In a child of fork(2): maps memory of the child's own where the parent had its page, so that a call that the fork
/// interrupted can write there.
void replace(std::byte* memory) noexcept;

/// Gives a part of the file its memory: a write to a page that the file system has no room for would raise SIGBUS.
/// Errors: `out_of_resources` with ENOSPC, and the system's.
[[nodiscard]] result<void> fill(const std::string& path, std::size_t from, std::size_t bytes) noexcept;

}  // namespace pinfold::observation
