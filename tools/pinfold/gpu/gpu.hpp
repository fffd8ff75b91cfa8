// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A device as the tool uses it: memory of both kinds, and copies with verified bytes.
#pragma once

#include "gpu/cuda_calls.hpp"

#include <pinfold/importers/cuda_ipc.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tool {

/// Memory of a device; for segments, a mapped one.
struct gpu_memory {
  pinfold::cuda_memory_kind kind = pinfold::cuda_memory_kind::allocation;
  cuda_pointer at = 0;
  std::size_t bytes = 0;  ///< as requested; for segments, rounded up to what can be mapped
};

/// A device. Its primary context, which pinfold uses too, is current only for the thread that started it. Not
/// thread-safe. Memory that is not freed lives until the process ends.
class gpu {
 public:
  [[nodiscard]] static pinfold::result<gpu> start(int ordinal);

  [[nodiscard]] pinfold::result<gpu_memory> allocate(pinfold::cuda_memory_kind kind, std::size_t bytes) const noexcept;
  [[nodiscard]] pinfold::result<void> free(const gpu_memory& memory) const noexcept;
  [[nodiscard]] pinfold::result<std::size_t> free_bytes() const noexcept;

  /// Copies, and returns when the bytes are there: the driver's copies between devices' memory end after the call that
  /// begins them.
  [[nodiscard]] pinfold::result<void> copy(cuda_pointer to, cuda_pointer from, std::size_t bytes) const noexcept;
  [[nodiscard]] pinfold::result<void> copy_to_host(std::span<std::byte> to, cuda_pointer from) const noexcept;
  [[nodiscard]] pinfold::result<void> wipe(cuda_pointer at, std::size_t bytes) const noexcept;

  /// Writes the content of `seed` (message.hpp), and checks that it is there.
  [[nodiscard]] pinfold::result<void> fill(cuda_pointer at, std::size_t bytes, std::uint64_t seed,
                                           std::size_t position = 0);
  [[nodiscard]] pinfold::result<bool> holds(cuda_pointer at, std::size_t bytes, std::uint64_t seed,
                                            std::size_t position = 0);

 private:
  gpu(const cuda_calls& calls, int ordinal) noexcept : calls_(&calls), ordinal_(ordinal) {}
  [[nodiscard]] pinfold::result<gpu_memory> map_segment(std::size_t bytes) const noexcept;
  [[nodiscard]] int put_physical(const gpu_memory& reserved) const noexcept;
  [[nodiscard]] cuda_allocation_properties shareable() const noexcept;

  const cuda_calls* calls_;
  int ordinal_;
  std::vector<std::byte> stage_;  ///< in the host's memory
};

}  // namespace tool
