// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that this process has registered with the CUDA driver through pinfold. Pieces never overlap.
///
/// A piece whose memory is gone must not serve another request. The caches report gone memory (`open_table::outdate`),
/// and the table itself reads the event log before it shares a piece: a cache that holds a piece and makes no request
/// reads no events.
#pragma once

#include <pinfold/range.hpp>

#include "cuda/context.hpp"
#include "cuda/only.hpp"
#include "cuda/open_table.hpp"
#include "invalidation/event_log.hpp"

#include <iterator>
#include <memory>

namespace pinfold::cuda_host {

struct piece {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool read_only;
  friend bool operator<(const piece& left, const piece& right) noexcept { return left.begin < right.begin; }
};

/// A registration of the driver. Keeps the context that made it: a registrar that shares it may use another device.
struct registered {
  cuda::device_pointer at = 0;
  std::shared_ptr<const cuda::primary_context> in{};
  std::uint64_t life = 0;  ///< of the context
};

class piece_table : public cuda::open_table<piece, registered> {
 public:
  /// Returns the first piece that overlaps the wanted one, or the end, after applying every event from before the call.
  /// Requires the table's mutex, which `take` holds when it calls this.
  [[nodiscard]] place first_in_the_way(entries& in, const piece& wanted) noexcept {
    if (const auto* const log = invalidation::event_log::if_there(); log != nullptr) read(*log, in);
    return first_overlap(in, {wanted.begin, wanted.end});
  }

 private:
  static place first_overlap(entries& in, const range& wanted) noexcept;
  void read(const invalidation::event_log& log, entries& in) noexcept;

  std::uint64_t process_ = 0;  // whose log was read up to `cursor_`; guarded by the table's mutex, like the next
  std::uint64_t cursor_ = 0;
};

inline piece_table& all_pieces() noexcept { return cuda::only<piece_table>(); }

}  // namespace pinfold::cuda_host
