// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory of a rank that the previous rank puts to and gets from.
#pragma once

#include "perf/remappable_memory.hpp"
#include "perf/rma/subject.hpp"

#include <string>
#include <vector>

namespace tool {

/// Slots side by side, each with a registration of its own: a put to the wrong slot, or past the end of one, is either
/// refused or detected in the bytes. Registered through a cache, with leases that live as long as the window.
class rma_window {
 public:
  /// Throws `failure`.
  rma_window(const fabric_end& end, const rma_buffers& slots, const pinfold::cache_options& cache);

  [[nodiscard]] std::span<std::byte> slot(std::size_t number) noexcept {
    return memory_.bytes().subspan(number * size_, size_);
  }

  /// Returns what the previous rank has to know, as bytes.
  [[nodiscard]] std::string invitation();

 private:
  remappable_memory memory_;
  std::size_t size_;
  fabric_cache cache_;
  std::vector<fabric_cache::lease> held_;
};

/// Returns the slots of an invitation. Throws `failure` when there are not `count`.
[[nodiscard]] std::vector<fabric_target> targets_of(const std::string& invitation, std::size_t count);

}  // namespace tool
