// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caller's lease on imported memory.
#pragma once

#include <pinfold/importer.hpp>
#include <pinfold/lease_base.hpp>

namespace pinfold {

template <importer I>
class import_cache;

/// A lease on imported memory: while it lives, the memory stays mapped in this process. Move-only, 16 bytes. A lease
/// may be moved to, and released on, another thread; two threads must not use one lease object at the same time. Do not
/// acquire or release in a signal handler. A close that fails in the destructor is reported to the cache's event sink.
template <importer I>
class [[nodiscard]] import_lease : public lease_base {
 public:
  /// Holds nothing.
  import_lease() noexcept = default;
  import_lease(import_lease&&) noexcept = default;
  import_lease& operator=(import_lease&&) noexcept = default;
  [[gnu::always_inline]] ~import_lease() = default;

  /// Returns where the acquired memory is in this process; null if the lease is empty, or if the cache was destroyed
  /// after its drain time-out while this lease was out.
  [[nodiscard]] void* data() const noexcept { return address(); }

  /// Returns the importer's own record of the mapping; `registration_type{}` if the lease is empty.
  [[nodiscard]] typename I::registration_type registration() const noexcept {
    return object<typename I::registration_type>(detail::imported_object_offset);
  }

 private:
  friend class import_cache<I>;
  explicit import_lease(const detail::grant& granted) noexcept : lease_base(granted) {}
};

}  // namespace pinfold
