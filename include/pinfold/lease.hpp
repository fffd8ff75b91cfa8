// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caller's lease on a registration of local memory.
#pragma once

#include <pinfold/lease_base.hpp>
#include <pinfold/registrar.hpp>

#include <utility>

namespace pinfold {

template <registrar R>
class cache;
template <registrar R>
class chunk_stream;
template <registrar R>
class large_lease;

/// A lease on a registration: while it lives, the memory stays registered. Move-only, 16 bytes. A lease may be moved
/// to, and released on, another thread; two threads must not use one lease object at the same time. A lease must
/// outlive the I/O that uses it. Do not acquire or release in a signal handler. A close that fails in the destructor is
/// reported to the cache's event sink.
template <registrar R>
class [[nodiscard]] lease : public lease_base {
 public:
  /// Holds nothing.
  lease() noexcept = default;
  lease(lease&&) noexcept = default;
  lease& operator=(lease&&) noexcept = default;
  [[gnu::always_inline]] ~lease() = default;

  /// Returns the address that was acquired; null if the lease is empty, or if the cache was destroyed after its drain
  /// time-out while this lease was out.
  [[nodiscard]] const void* data() const noexcept { return address(); }

  /// Returns what the driver made, to be passed to the device: buffer index, keys. `registration_type{}` if the lease
  /// is empty.
  [[nodiscard]] typename R::registration_type registration() const noexcept {
    return object<typename R::registration_type>(detail::local_object_offset);
  }

 private:
  friend class cache<R>;
  friend class chunk_stream<R>;
  friend class large_lease<R>;
  explicit lease(const detail::grant& granted) noexcept : lease_base(granted) {}
  explicit lease(lease_base&& taken) noexcept : lease_base(std::move(taken)) {}
};

}  // namespace pinfold
