// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Checks a fetched descriptor and maps its memory.
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include "importers/memfd/handle.hpp"
#include "os/file.hpp"

#include <sys/types.h>

namespace pinfold::memfd {

/// Returns the device number of all memfds. Errors: `out_of_resources`, and the system's.
[[nodiscard]] result<dev_t> device() noexcept;

/// Checks that the descriptor is the memfd that the handle names, large enough, and sealed as the options require.
/// `stale_handle`, `invalid_range`, `not_permitted`.
[[nodiscard]] result<void> verify(const os::file& fetched, const memfd_handle& handle,
                                  const memfd_importer_options& options) noexcept;

/// Maps the file, over the reservation at `where` if that is not null. `out_of_resources` if this process cannot have
/// more mappings, `not_permitted`; a reservation is then unchanged.
[[nodiscard]] result<void*> map_imported(const os::file& verified, const memfd_handle& handle,
                                         const memfd_importer_options& options, void* where = nullptr) noexcept;

}  // namespace pinfold::memfd
