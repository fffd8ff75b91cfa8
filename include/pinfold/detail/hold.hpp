// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What all leases have in common. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>

#include <cstring>
#include <utility>

namespace pinfold::detail {

/// A counted hold on an entry, 16 bytes.
class hold {
 public:
  hold() noexcept = default;
  explicit hold(const grant& granted) noexcept : held_(granted.held), data_(granted.data) {}
  hold(hold&& other) noexcept : held_(std::exchange(other.held_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  hold& operator=(hold&& other) noexcept {
    hold taken(std::move(other));
    std::swap(held_, taken.held_);
    std::swap(data_, taken.data_);
    return *this;
  }
  hold(const hold&) = delete;
  hold& operator=(const hold&) = delete;
  [[gnu::always_inline]] ~hold() {
    if (held_ != 0) static_cast<void>(give_back(held_));
  }

  /// Whether it holds anything.
  explicit operator bool() const noexcept { return held_ != 0; }

  /// Where the acquired address is in this process; null when nothing is held, or when the cache was destroyed after
  /// its drain time-out with this lease still out.
  [[nodiscard]] void* data() const noexcept { return closed() ? nullptr : data_; }

  /// Whether there is nothing usable behind this lease: it is empty, or its cache has closed it.
  [[nodiscard]] bool closed() const noexcept { return held_ == 0 || record_of(held_)->is(record::revoked); }

  /// Whether the memory was replaced or invalidated since it was acquired. What was registered is still registered.
  [[nodiscard]] bool stale() const noexcept { return held_ != 0 && record_of(held_)->is(record::stale); }

  /// Gives the hold back. Where this closes the registration, the driver's result is returned (R47); a failed close
  /// stays with the cache, which retries it. Does nothing on an empty lease, so releasing twice is harmless.
  [[gnu::always_inline]] result<void> release() noexcept {
    data_ = nullptr;
    return held_ == 0 ? result<void>{} : give_back(std::exchange(held_, 0));
  }

 protected:
  /// The back end's object; one that was initialized from `{}` when nothing is held.
  template <class T>
  [[nodiscard]] T object(std::size_t offset) const noexcept {
    T copy{};
    if (held_ == 0) [[unlikely]]
      return copy;
    std::memcpy(&copy, reinterpret_cast<const std::byte*>(record_of(held_)) + offset, sizeof copy);
    return copy;
  }

 private:
  [[gnu::always_inline]] static result<void> give_back(pin held) noexcept {
    const record* unpinned = unpin(held);
    return unpinned == nullptr ? result<void>{} : settle(unpinned);
  }

  pin held_ = 0;
  void* data_ = nullptr;
};

}  // namespace pinfold::detail
