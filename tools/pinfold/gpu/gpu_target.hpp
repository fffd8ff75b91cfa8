// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The destination of copies from a peer's GPU memory.
#pragma once

#include "gpu/cuda_peer.hpp"
#include "gpu/gpu.hpp"
#include "peer/reader.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/cuda_ipc.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tool {

/// A target in memory of the device, or of the host. The memory lives as long as the target.
class gpu_target {
 public:
  /// `where` is "device" or "host". Throws `failure`.
  gpu_target(gpu& device, std::string_view where, std::size_t bytes);
  gpu_target(const gpu_target&) = delete;
  gpu_target& operator=(const gpu_target&) = delete;
  ~gpu_target();

  /// Overwrites the first `bytes` with content of no message.
  [[nodiscard]] pinfold::result<void> wipe(std::size_t bytes);

  /// Copies to the beginning of the target; done when it returns.
  [[nodiscard]] pinfold::result<void> take(const void* from, std::size_t bytes);

  /// Returns whether the first bytes are those of the message `seed` from `position` on.
  [[nodiscard]] pinfold::result<bool> holds(std::size_t bytes, std::uint64_t seed, std::size_t position);

 private:
  gpu& device_;
  gpu_memory there_;
  std::vector<std::byte> here_;
};

using gpu_cache = pinfold::import_cache<pinfold::cuda_ipc_importer>;
using gpu_reader = reader<gpu_message, gpu_target>;

}  // namespace tool
