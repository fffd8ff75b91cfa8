// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Addresses of this process without memory, over parts of which memory can be mapped.
#pragma once

#include <pinfold/error.hpp>

#include <cstddef>
#include <utility>

namespace pinfold::os {

/// Turns the `bytes` bytes at `address`, which must belong to a reservation, back into reserved addresses in one step.
/// On an error, nothing has changed.
[[nodiscard]] result<void> reserve_again(void* address, std::size_t bytes) noexcept;

/// Reserves the part of a reservation again that a failed mmap(2) at fixed addresses unmapped: older kernels unmap
/// before they find out that memory is short.
void mend_reservation(void* address, std::size_t bytes) noexcept;

/// Owns an address range, with all that is mapped in it, or nothing. Move-only, not thread-safe.
class reservation {
 public:
  /// Reserves a range of whole pages. `out_of_resources`.
  [[nodiscard]] static result<reservation> of(std::size_t bytes) noexcept;

  reservation() noexcept = default;
  reservation(reservation&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  reservation& operator=(reservation&& other) noexcept {
    reservation taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~reservation();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pinfold::os
