// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The common base of all leases. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>

#include <cstring>
#include <utility>

namespace pinfold::detail {

/// The base of leases: one pin on an entry, 16 bytes.
class pin_guard {
 public:
  pin_guard() noexcept = default;
  explicit pin_guard(const grant& granted) noexcept : pin_(granted.held), data_(granted.data) {}
  pin_guard(pin_guard&& other) noexcept
      : pin_(std::exchange(other.pin_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  pin_guard& operator=(pin_guard&& other) noexcept {
    pin_guard taken(std::move(other));
    std::swap(pin_, taken.pin_);
    std::swap(data_, taken.data_);
    return *this;
  }
  pin_guard(const pin_guard&) = delete;
  pin_guard& operator=(const pin_guard&) = delete;
  [[gnu::always_inline]] ~pin_guard() {
    if (pin_ != 0) static_cast<void>(give_back(pin_));
  }

  /// Returns whether the lease holds a registration.
  explicit operator bool() const noexcept { return pin_ != 0; }

  /// Returns the local address of the acquired memory; null if the lease is empty, or if the cache was destroyed after
  /// its drain time-out while this lease was out.
  [[nodiscard]] void* data() const noexcept { return closed() ? nullptr : data_; }

  /// Returns whether the lease is unusable: it is empty, or its cache was destroyed and has closed the registration.
  [[nodiscard]] bool closed() const noexcept { return pin_ == 0 || record_of(pin_)->is(record::revoked); }

  /// Returns whether the memory was replaced or invalidated after the acquire. The registration is still open.
  [[nodiscard]] bool stale() const noexcept { return pin_ != 0 && record_of(pin_)->is(record::stale); }

  /// Releases the lease. If this closes the registration, returns the driver's result (R47); after a failed close the
  /// cache keeps the entry and retries. Does nothing on an empty lease, so a second release is harmless.
  [[gnu::always_inline]] result<void> release() noexcept {
    data_ = nullptr;
    return pin_ == 0 ? result<void>{} : give_back(std::exchange(pin_, 0));
  }

 protected:
  /// Returns a copy of the back end's object; one initialized from `{}` if the lease is empty.
  template <class T>
  [[nodiscard]] T object(std::size_t offset) const noexcept {
    T copy{};
    if (pin_ == 0) [[unlikely]]
      return copy;
    std::memcpy(&copy, reinterpret_cast<const std::byte*>(record_of(pin_)) + offset, sizeof copy);
    return copy;
  }

 private:
  [[gnu::always_inline]] static result<void> give_back(pin held) noexcept {
    const record* unpinned = unpin(held);
    return unpinned == nullptr ? result<void>{} : finish_release(unpinned);
  }

  pin pin_ = 0;
  void* data_ = nullptr;
};

}  // namespace pinfold::detail
