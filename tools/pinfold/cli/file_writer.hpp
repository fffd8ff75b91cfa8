// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Writes pieces of memory to a file, several at a time, and keeps their registrations until each is written.
#pragma once

#include "perf/local/uring.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tool {

/// Needs a ring with nothing else under way, and with room for `depth` writes.
class file_writer {
 public:
  file_writer(uring& ring, int file, unsigned depth) : ring_(ring), file_(file), slots_(depth) {}
  file_writer(const file_writer&) = delete;
  file_writer& operator=(const file_writer&) = delete;
  ~file_writer();  ///< waits for all writes: none may outlive its registration

  /// Begins to write `piece` at `offset`; waits first when `depth` writes are under way. Releases `held` when the piece
  /// is written. The error may be that of an earlier write.
  [[nodiscard]] pinfold::result<void> write(std::span<std::byte> piece, std::uint64_t offset, std::uint32_t index,
                                            uring_cache::lease held = {});

  /// Waits until everything is written.
  [[nodiscard]] pinfold::result<void> finish();

 private:
  struct slot {
    std::size_t bytes = 0;  // under way; 0 when free
    uring_cache::lease held;
  };

  pinfold::result<void> complete_one();

  uring& ring_;
  int file_;
  std::vector<slot> slots_;
  std::size_t under_way_ = 0;
};

}  // namespace tool
