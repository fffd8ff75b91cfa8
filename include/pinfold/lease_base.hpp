// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The members that leases of both caches have.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>

#include <cstring>
#include <utility>

namespace pinfold {

/// The common part of `lease` and `import_lease`: one pin on a registration, 16 bytes.
class lease_base {
 public:
  lease_base() noexcept = default;
  /// Takes over the engine's pin.
  explicit lease_base(const detail::grant& granted) noexcept : pin_(granted.held), data_(granted.data) {}
  lease_base(lease_base&& other) noexcept
      : pin_(std::exchange(other.pin_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  lease_base& operator=(lease_base&& other) noexcept {
    lease_base taken(std::move(other));
    std::swap(pin_, taken.pin_);
    std::swap(data_, taken.data_);
    return *this;
  }
  lease_base(const lease_base&) = delete;
  lease_base& operator=(const lease_base&) = delete;
  [[gnu::always_inline]] ~lease_base() {
    if (pin_ != 0) static_cast<void>(give_back(pin_));
  }

  /// Returns whether the lease holds a registration.
  explicit operator bool() const noexcept { return pin_ != 0; }

  /// Returns whether the lease is unusable: it is empty, or its cache was destroyed and has closed the registration.
  [[nodiscard]] bool closed() const noexcept {
    return pin_ == 0 || detail::record_of(pin_)->is(detail::record::revoked);
  }

  /// Returns whether the cache has noticed that the memory was replaced or invalidated after the acquire. The cache
  /// checks in every request, and in `progress()`. The registration is still open.
  [[nodiscard]] bool stale() const noexcept { return pin_ != 0 && detail::record_of(pin_)->is(detail::record::stale); }

  /// Returns the addresses that the registration covers, of this process or of the exporter: at least those that were
  /// acquired. Nothing if the lease is `closed`.
  [[nodiscard]] range covered() const noexcept { return closed() ? range{} : detail::record_of(pin_)->covered(); }

  /// Releases the lease. If this closes the registration, returns the driver's result (R47); after a failed close the
  /// cache keeps the entry and retries. Does nothing on an empty lease, so a second release is harmless.
  [[gnu::always_inline]] result<void> release() noexcept {
    data_ = nullptr;
    return pin_ == 0 ? result<void>{} : give_back(std::exchange(pin_, 0));
  }

 protected:
  /// Returns the local address of the acquired memory; null if the lease is `closed`.
  [[nodiscard]] void* address() const noexcept { return closed() ? nullptr : data_; }

  /// Returns the engine's pin; 0 if the lease is empty.
  [[nodiscard]] detail::pin held() const noexcept { return pin_; }

  /// Returns a copy of the back end's object; one initialized from `{}` if the lease is empty.
  template <class T>
  [[nodiscard]] T object(std::size_t offset) const noexcept {
    T copy{};
    if (pin_ == 0) [[unlikely]]
      return copy;
    std::memcpy(&copy, reinterpret_cast<const std::byte*>(detail::record_of(pin_)) + offset, sizeof copy);
    return copy;
  }

 private:
  [[gnu::always_inline]] static result<void> give_back(detail::pin held) noexcept {
    const detail::record* unpinned = detail::unpin(held);
    return unpinned == nullptr ? result<void>{} : detail::finish_release(unpinned);
  }

  detail::pin pin_ = 0;
  void* data_ = nullptr;
};

}  // namespace pinfold
