// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What all leases have in common. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>

#include <cstring>
#include <utility>

namespace pinfold::detail {

/// A counted hold on an entry, 16 bytes.
class hold {
 public:
  hold() noexcept = default;
  explicit hold(const grant& granted) noexcept : entry_(granted.entry), data_(granted.data) {}
  hold(hold&& other) noexcept
      : entry_(std::exchange(other.entry_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  hold& operator=(hold&& other) noexcept {
    hold taken(std::move(other));
    std::swap(entry_, taken.entry_);
    std::swap(data_, taken.data_);
    return *this;
  }
  hold(const hold&) = delete;
  hold& operator=(const hold&) = delete;
  ~hold() { static_cast<void>(release()); }

  /// Whether it holds anything.
  explicit operator bool() const noexcept { return entry_ != nullptr; }

  /// Where the acquired address is in this process; null when nothing is held, or when the cache was destroyed after
  /// its drain time-out with this lease still out.
  [[nodiscard]] void* data() const noexcept { return closed() ? nullptr : data_; }

  /// Whether there is nothing usable behind this lease: it is empty, or its cache has closed it.
  [[nodiscard]] bool closed() const noexcept {
    return entry_ == nullptr || entry_->revoked.load(std::memory_order_acquire);
  }

  /// Whether the memory was replaced or invalidated since it was acquired. What was registered is still registered.
  [[nodiscard]] bool stale() const noexcept {
    return entry_ != nullptr && entry_->stale.load(std::memory_order_acquire);
  }

  /// Gives the hold back. Where this closes the registration, the driver's result is returned (R47); a failed close
  /// stays with the cache, which retries it. Does nothing on an empty lease, so releasing twice is harmless.
  result<void> release() noexcept {
    data_ = nullptr;
    return entry_ == nullptr ? result<void>{} : detail::release(std::exchange(entry_, nullptr));
  }

 protected:
  template <class T>
  [[nodiscard]] T object() const noexcept {
    T copy;
    std::memcpy(&copy, entry_->object.bytes.data(), sizeof copy);
    return copy;
  }

 private:
  record* entry_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace pinfold::detail
