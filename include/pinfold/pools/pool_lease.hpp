// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A lease on a slab of a pool, for I/O that may outlive the allocation or the pool.
#pragma once

#include <pinfold/detail/slabs.hpp>
#include <pinfold/registrar.hpp>

#include <cstring>
#include <utility>

namespace pinfold {

template <registrar R, bool Synchronized>
class basic_registered_pool;

/// A lease on a slab. While it lives, the slab stays mapped and registered, even after the end of the pool, and the
/// pool does not reuse memory that is freed in that slab: a device that still writes there does no harm (R51).
/// Move-only. A lease of a synchronized pool may be released on any thread, a lease of any other pool on the pool's
/// thread.
template <registrar R>
class [[nodiscard]] pool_lease {
 public:
  /// Holds nothing.
  pool_lease() noexcept = default;
  pool_lease(pool_lease&& other) noexcept : pin_(std::exchange(other.pin_, {})) {}
  pool_lease& operator=(pool_lease&& other) noexcept {
    pool_lease taken(std::move(other));
    std::swap(pin_, taken.pin_);
    return *this;
  }
  pool_lease(const pool_lease&) = delete;
  pool_lease& operator=(const pool_lease&) = delete;
  ~pool_lease() { release(); }

  /// Returns whether the lease holds a slab.
  explicit operator bool() const noexcept { return pin_.on != nullptr; }

  /// Returns what the driver made, to be passed to the device; `registration_type{}` if the lease is empty.
  [[nodiscard]] typename R::registration_type registration() const noexcept {
    typename R::registration_type copy{};
    if (pin_.on != nullptr) std::memcpy(&copy, detail::registration_of(pin_).bytes.data(), sizeof copy);
    return copy;
  }

  /// Releases the lease. Does nothing on an empty lease.
  void release() noexcept {
    if (pin_.on != nullptr) detail::release(pin_);
  }

 private:
  template <registrar, bool>
  friend class basic_registered_pool;
  explicit pool_lease(detail::slab_pin held) noexcept : pin_(std::move(held)) {}

  detail::slab_pin pin_;
};

}  // namespace pinfold
