// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Announces that a thread waits for releases.
#pragma once

#include <pinfold/detail/hit.hpp>

#include <atomic>

namespace pinfold::core {

/// While one lives that has `begun`, releases in the whole process are settled, and so wake the threads that wait.
class release_watch {
 public:
  release_watch() noexcept = default;
  ~release_watch() {
    if (begun_) detail::releases_awaited.fetch_sub(1, std::memory_order_seq_cst);
  }
  release_watch(const release_watch&) = delete;
  release_watch& operator=(const release_watch&) = delete;

  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// A barrier has to follow, and another look, before the thread waits.
  void begin() noexcept {
    begun_ = true;
    detail::releases_awaited.fetch_add(1, std::memory_order_seq_cst);
  }

 private:
  bool begun_ = false;
};

}  // namespace pinfold::core
