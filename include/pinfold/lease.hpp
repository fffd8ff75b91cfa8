// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caller's hold on a registration of its own memory.
#pragma once

#include <pinfold/detail/hold.hpp>
#include <pinfold/registrar.hpp>

namespace pinfold {

template <registrar R>
class cache;
template <registrar R>
class chunk_stream;

/// While a lease lives, the memory that it was acquired for stays registered. Move-only, 16 bytes. It may be moved to
/// and released on another thread; one lease object must not be used by two threads at the same time. It must outlive
/// the I/O that uses it. Acquiring and releasing are not for signal handlers. A close that fails in the destructor is
/// reported to the cache's event sink.
template <registrar R>
class [[nodiscard]] lease : public detail::hold {
 public:
  /// Holds nothing.
  lease() noexcept = default;
  lease(lease&&) noexcept = default;
  lease& operator=(lease&&) noexcept = default;
  [[gnu::always_inline]] ~lease() = default;

  /// What the device is to be told: buffer index, keys. Of an empty lease `registration_type{}`.
  [[nodiscard]] typename R::registration_type handle() const noexcept {
    return object<typename R::registration_type>(detail::local_object_offset);
  }

 private:
  friend class cache<R>;
  friend class chunk_stream<R>;
  explicit lease(const detail::grant& granted) noexcept : hold(granted) {}
};

}  // namespace pinfold
