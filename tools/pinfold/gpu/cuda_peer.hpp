// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A peer with GPU memory: a real process of its own that allocates and exports it.
#pragma once

#include "peer/peer_child.hpp"

#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/peer.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tool {

/// A message at the first byte of a peer's allocation.
struct gpu_message {
  pinfold::peer_id peer;
  pinfold::cuda_ipc_handle handle;
  std::size_t size = 0;      ///< bytes; the allocation may be larger
  std::uint64_t seed = 0;    ///< of the content (message.hpp)
  std::uint32_t buffer = 0;  ///< the peer's number for it
};

/// The parent's side. The peer ends with this object or its parent. Not thread-safe.
class cuda_peer {
 public:
  /// Forks. Call it before this process has a second thread, and before it loads the CUDA driver, which does not
  /// survive a fork. Throws `failure` in the driver's words when the peer cannot use the device.
  explicit cuda_peer(int device);

  /// Makes the peer allocate a buffer, and fill it with a new message.
  [[nodiscard]] pinfold::result<gpu_message> provide(pinfold::cuda_memory_kind kind, std::size_t bytes);

  /// Makes the peer free that buffer.
  [[nodiscard]] pinfold::result<void> free(const gpu_message& message);

  /// Makes the peer free all of these buffers. Throws `failure`.
  void take_back(const std::vector<gpu_message>& messages);

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }

 private:
  static constexpr pinfold::peer_id id_{1};
  peer_child child_;
  std::uint32_t buffers_ = 0;
};

/// Runs the peer's side: serves requests until the parent hangs up.
void serve_gpu_memory(int socket, int device) noexcept;

}  // namespace tool
