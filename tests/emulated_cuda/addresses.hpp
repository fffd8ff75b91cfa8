// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The addresses that device memory may have in this process.
#pragma once

#include "registrars/cuda_api.hpp"

#include <map>

namespace emulated_cuda {

/// Hands out the lowest addresses that are free, so that what is freed is soon used again. Has no lock.
class address_space {
 public:
  /// Takes the range from the process, without memory behind it. Nothing can be had where that fails.
  explicit address_space(std::uint64_t bytes) noexcept;

  /// A multiple of the alignment, which is a power of two; bytes and alignment are multiples of 2 MiB. 0: no room.
  pinfold::cuda::device_pointer take(std::uint64_t bytes, std::uint64_t alignment,
                                     pinfold::cuda::device_pointer hint = 0);
  /// Unmaps what is there.
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
  std::uint64_t first_free_ = 0;  ///< nothing below it is
  taken_map taken_;
};

/// Makes the addresses unusable again, without giving them to anyone else.
void forget_memory(pinfold::cuda::device_pointer base, std::uint64_t bytes) noexcept;

}  // namespace emulated_cuda
