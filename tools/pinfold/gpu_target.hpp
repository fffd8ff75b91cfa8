// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where messages from a peer's GPU memory are copied to.
#pragma once

#include "gpu.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tool {

/// Memory of the device, or of the host. Lives as long as this.
class gpu_target {
 public:
  /// `where` is "device" or "host". Throws `failure`.
  gpu_target(gpu& device, std::string_view where, std::size_t bytes);
  gpu_target(const gpu_target&) = delete;
  gpu_target& operator=(const gpu_target&) = delete;
  ~gpu_target();

  /// Overwrites the first `bytes` with what is in no message.
  [[nodiscard]] pinfold::result<void> wipe(std::size_t bytes);

  /// Copies to the beginning; done when it returns.
  [[nodiscard]] pinfold::result<void> take(cuda_pointer from, std::size_t bytes);

  /// Whether the first bytes are those of the message `seed` from `position` on.
  [[nodiscard]] pinfold::result<bool> holds(std::size_t bytes, std::uint64_t seed, std::size_t position = 0);

 private:
  gpu& device_;
  gpu_memory there_;
  std::vector<std::byte> here_;
};

}  // namespace tool
