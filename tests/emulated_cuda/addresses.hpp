// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The addresses that device memory may have in this process.
#pragma once

#include "cuda/api.hpp"

#include <cstdint>
#include <map>

namespace emulated_cuda {

/// Returns the lowest multiple of the alignment that is not below the value.
[[nodiscard]] inline std::uint64_t up_to(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) / alignment * alignment;
}

/// Hands out the lowest free addresses, so that freed ones are soon used again. Has no lock.
class address_space {
 public:
  /// Reserves the range in the process, without memory behind it. When that fails, `take` gives nothing.
  explicit address_space(std::uint64_t bytes) noexcept;

  /// Returns a multiple of the alignment, or 0 when there is no room. The alignment is a power of two; bytes and
  /// alignment are multiples of 2 MiB.
  pinfold::cuda::device_pointer take(std::uint64_t bytes, std::uint64_t alignment,
                                     pinfold::cuda::device_pointer hint = 0);
  /// Unmaps the memory at these addresses and frees them.
  void give_back(pinfold::cuda::device_pointer base) noexcept;

  [[nodiscard]] bool contains(pinfold::cuda::device_pointer address) const noexcept {
    return address >= begin_ && address < end_;
  }

 private:
  using taken_map = std::map<std::uint64_t, std::uint64_t>;  // begin, end
  [[nodiscard]] pinfold::cuda::device_pointer lowest(std::uint64_t bytes, std::uint64_t alignment) const noexcept;
  [[nodiscard]] bool is_free(std::uint64_t begin, std::uint64_t end) const noexcept;

  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t first_free_ = 0;  ///< no address below it is free
  taken_map taken_;
};

/// Makes the addresses unusable again, but does not free them.
void forget_memory(pinfold::cuda::device_pointer base, std::uint64_t bytes) noexcept;

}  // namespace emulated_cuda
