// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that this process has registered with the CUDA driver through pinfold. Pieces never overlap.
#pragma once

#include <pinfold/range.hpp>

#include "cuda/context.hpp"
#include "cuda/only.hpp"
#include "cuda/open_table.hpp"

#include <iterator>
#include <memory>

namespace pinfold::cuda_host {

struct piece {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool read_only;
  friend bool operator<(const piece& left, const piece& right) noexcept { return left.begin < right.begin; }
};

/// A registration of the driver. It keeps the context that made it: a registrar that shares it may use another device.
struct registered {
  cuda::device_pointer at = 0;
  std::shared_ptr<const cuda::primary_context> in{};
  std::uint64_t life = 0;  ///< of the context
};

using piece_table = cuda::open_table<piece, registered>;

/// Returns the process's table.
inline piece_table& all_pieces() noexcept { return cuda::only<piece_table>(); }

/// Returns the first piece that overlaps the wanted one, or the end.
inline piece_table::place first_overlap(piece_table::entries& in, const piece& wanted) noexcept {
  const auto after = in.lower_bound(wanted);
  if (after != in.begin() && std::prev(after)->first.end > wanted.begin) return std::prev(after);
  return after != in.end() && after->first.begin < wanted.end ? after : in.end();
}

}  // namespace pinfold::cuda_host
