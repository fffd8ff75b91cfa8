// SPDX-License-Identifier: BSD-3-Clause
#include "cli/file_writer.hpp"

#include <algorithm>
#include <utility>

namespace tool {

file_writer::~file_writer() {
  // Ends also when waiting for the ring fails: each failed wait leaves one less to wait for.
  while (under_way_ > 0) static_cast<void>(complete_one());
}

pinfold::result<void> file_writer::write(std::span<std::byte> piece, std::uint64_t offset, std::uint32_t index,
                                         uring_cache::lease held) {
  if (under_way_ == slots_.size()) {
    if (auto done = complete_one(); !done) return done;
  }
  const auto free = std::ranges::find(slots_, std::size_t{0}, &slot::bytes);
  const auto number = static_cast<std::uint64_t>(free - slots_.begin());
  if (auto ready = ring_.prepare({true, file_, piece, offset, index}, number); !ready) return ready;
  *free = {piece.size(), std::move(held)};
  ++under_way_;
  return ring_.submit();
}

pinfold::result<void> file_writer::finish() {
  pinfold::result<void> first;
  while (under_way_ > 0) {
    if (auto done = complete_one(); !done && first) first = done;
  }
  return first;
}

pinfold::result<void> file_writer::complete_one() {
  --under_way_;
  const auto seen = ring_.wait();
  if (!seen) return tl::unexpected(seen.error());
  auto done = std::exchange(slots_.at(seen->tag), slot{});
  return checked(seen->answer, done.bytes);
}

}  // namespace tool
