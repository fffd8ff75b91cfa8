// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The list of this process's mappings, open.
#pragma once

#include "os/file.hpp"

namespace pinfold::detail {

/// The maps of this process, by /proc/thread-self: the files below /proc/self are those of the main thread, and once
/// that has ended (pthread_exit(3)), they can be opened and are empty. One descriptor stays open for all threads,
/// because an open takes ten times as long as a query; without it, each object opens its own. Queries (PROCMAP_QUERY)
/// still work when the thread that opened it has ended; read(2) then fails. Thread-safe.
class own_maps {
 public:
  own_maps() noexcept;
  own_maps(const own_maps&) = delete;
  own_maps& operator=(const own_maps&) = delete;

  /// Returns the descriptor; negative if there is none.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  os::file opened_;  // where the descriptor is not shared
  int descriptor_;
};

}  // namespace pinfold::detail
