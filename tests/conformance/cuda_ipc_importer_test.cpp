// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/importer_suite.hpp"
#include "support/processes/cuda_peer.hpp"

namespace pinfold::testing::cuda_ipc_importer_test {

/// A rig for each kind of memory that can be shared.
template <cuda_memory_kind kind>
struct cuda_ipc_rig {
  using importer_type = cuda_ipc_importer;
  importer_type make_importer() { return cuda_ipc_importer(); }

  cuda_ipc_handle allocate(std::size_t bytes, std::uint32_t seed) {
    constexpr std::size_t segment = std::size_t{2} << 20U;
    switch (kind) {
      case cuda_memory_kind::segments: return peer.map_segments(1 + seed % 3, segment, seed).handle;
      case cuda_memory_kind::pool: return peer.allocate_pooled(bytes, seed).handle;
      case cuda_memory_kind::allocation: break;
    }
    return peer.allocate(bytes, seed).handle;
  }
  void free(const cuda_ipc_handle& allocation) { peer.free(allocation.base); }
  void end_exporter() {
    peer.process().kill();
    peer.process().reap();
  }
  bool holds(const void* data, std::size_t bytes, std::uint32_t seed) { return gpu().holds(data, bytes, seed); }

  cuda_peer peer;
};

using cuda_ipc_rigs = ::testing::Types<cuda_ipc_rig<cuda_memory_kind::allocation>,
                                       cuda_ipc_rig<cuda_memory_kind::segments>, cuda_ipc_rig<cuda_memory_kind::pool>>;
INSTANTIATE_TYPED_TEST_SUITE_P(cuda_ipc, importer_suite, cuda_ipc_rigs);

}  // namespace pinfold::testing::cuda_ipc_importer_test
