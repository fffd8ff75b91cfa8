// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caller's hold on imported memory.
#pragma once

#include <pinfold/detail/hold.hpp>
#include <pinfold/importer.hpp>

namespace pinfold {

template <importer I>
class import_cache;

/// While a lease lives, the memory that it was acquired for stays mapped here. Move-only, 16 bytes. It may be moved to
/// and released on another thread; one lease object must not be used by two threads at the same time. Acquiring and
/// releasing are not for signal handlers. A close that fails in the destructor is reported to the cache's event sink.
template <importer I>
class [[nodiscard]] import_lease : public detail::hold {
 public:
  /// Holds nothing.
  import_lease() noexcept = default;
  import_lease(import_lease&&) noexcept = default;
  import_lease& operator=(import_lease&&) noexcept = default;
  [[gnu::always_inline]] ~import_lease() = default;

  /// The importer's own record of the mapping. Of an empty lease `mapping_type{}`.
  [[nodiscard]] typename I::mapping_type mapping() const noexcept {
    return object<typename I::mapping_type>(detail::imported_object_offset);
  }

 private:
  friend class import_cache<I>;
  explicit import_lease(const detail::grant& granted) noexcept : hold(granted) {}
};

}  // namespace pinfold
