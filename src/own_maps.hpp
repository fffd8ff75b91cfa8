// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// /proc/self/maps, open.
#pragma once

namespace pinfold::detail {

/// The maps of this very process. One descriptor stays open for all threads, as opening takes ten times as long as a
/// question; where that cannot be had, each object opens its own. Thread-safe.
class own_maps {
 public:
  own_maps() noexcept;
  own_maps(const own_maps&) = delete;
  own_maps& operator=(const own_maps&) = delete;
  ~own_maps();

  /// Negative where there is none.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  bool kept_ = true;  // not ours to close
  int descriptor_;
};

}  // namespace pinfold::detail
