// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// /proc/self/maps, open.
#pragma once

namespace pinfold::detail {

/// The maps of this process. One descriptor stays open for all threads, as opening takes ten times as long as a query;
/// where there is none, each object opens its own. Thread-safe.
class own_maps {
 public:
  own_maps() noexcept;
  own_maps(const own_maps&) = delete;
  own_maps& operator=(const own_maps&) = delete;
  ~own_maps();

  /// Returns the descriptor, negative where there is none.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  bool kept_ = true;  // the descriptor is shared: this object must not close it
  int descriptor_;
};

}  // namespace pinfold::detail
