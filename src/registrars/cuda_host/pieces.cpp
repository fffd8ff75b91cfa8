// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/cuda_host/pieces.hpp"

#include <utility>

namespace pinfold::cuda_host {

namespace {

using invalidation::read_status;

constexpr range all_memory{0, UINTPTR_MAX};

}  // namespace

piece_table::place piece_table::first_overlap(entries& in, const range& wanted) noexcept {
  const auto after = in.lower_bound({wanted.begin, wanted.end, false});
  if (after != in.begin() && std::prev(after)->first.end > wanted.begin) return std::prev(after);
  return after != in.end() && after->first.begin < wanted.end ? after : in.end();
}

void piece_table::read(const invalidation::event_log& log, entries& in) noexcept {
  const auto outdate = [&](const range& gone) {
    for (place one = first_overlap(in, gone); one != in.end() && one->first.begin < gone.end; ++one)
      one->second.outdated = true;
  };
  if (std::exchange(process_, log.process()) != log.process()) {
    cursor_ = log.generation().load(std::memory_order_acquire);
    return outdate(all_memory);
  }
  for (range gone;;) {
    switch (log.read(cursor_, gone)) {
      case read_status::nothing: return;
      case read_status::one: outdate(gone); break;
      case read_status::everything: outdate(all_memory); break;
      case read_status::unfinished: return outdate(all_memory);
    }
  }
}

}  // namespace pinfold::cuda_host
