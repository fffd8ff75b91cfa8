// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caller's hold on imported memory.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/importer.hpp>

#include <cstring>
#include <utility>

namespace pinfold {

template <importer I>
class import_cache;

/// While a lease lives, the memory that it was acquired for stays mapped here. Move-only, 16 bytes. It may be moved to
/// and released on another thread; one lease object must not be used by two threads at the same time. Acquiring and
/// releasing are not for signal handlers.
template <importer I>
class [[nodiscard]] import_lease {
 public:
  /// Holds nothing.
  import_lease() noexcept = default;
  import_lease(import_lease&& other) noexcept
      : entry_(std::exchange(other.entry_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  import_lease& operator=(import_lease&& other) noexcept {
    import_lease taken(std::move(other));
    std::swap(entry_, taken.entry_);
    std::swap(data_, taken.data_);
    return *this;
  }
  import_lease(const import_lease&) = delete;
  import_lease& operator=(const import_lease&) = delete;

  /// Releases. A close that fails then is reported to the cache's event sink.
  ~import_lease() { static_cast<void>(release()); }

  /// Whether it holds anything.
  explicit operator bool() const noexcept { return entry_ != nullptr; }

  /// Where the acquired address is in this process; null when nothing is held, or when the cache was destroyed after
  /// its drain time-out with this lease still out.
  [[nodiscard]] void* data() const noexcept { return closed() ? nullptr : data_; }

  /// Whether there is nothing usable behind this lease: it is empty, or its cache has closed it.
  [[nodiscard]] bool closed() const noexcept {
    return entry_ == nullptr || entry_->revoked.load(std::memory_order_acquire);
  }

  /// Whether the memory was replaced or invalidated since: still mapped and safe to touch, but no longer what the
  /// exporter has at that address.
  [[nodiscard]] bool stale() const noexcept {
    return entry_ != nullptr && entry_->state.load(std::memory_order_acquire) != entry_state::live;
  }

  /// The importer's own record of the mapping. Requires that the lease holds something.
  [[nodiscard]] typename I::mapping_type mapping() const noexcept {
    typename I::mapping_type copy;
    std::memcpy(&copy, entry_->object.bytes.data(), sizeof copy);
    return copy;
  }

  /// Gives the hold back. Where this closes the registration, the driver's result is returned (R47); a failed close
  /// stays with the cache, which retries it. Does nothing on an empty lease, so releasing twice is harmless.
  result<void> release() noexcept {
    data_ = nullptr;
    return entry_ == nullptr ? result<void>{} : detail::release(std::exchange(entry_, nullptr));
  }

 private:
  friend class import_cache<I>;
  explicit import_lease(const detail::grant& granted) noexcept : entry_(granted.entry), data_(granted.data) {}

  detail::record* entry_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace pinfold
