// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of the cases of `pinfold perf import --cuda`.
#pragma once

#include "gpu/cuda_peer.hpp"
#include "gpu/gpu.hpp"
#include "gpu/gpu_target.hpp"
#include "perf/import/import.hpp"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace tool {

/// The peer, the device and the options of one run.
struct cuda_run {
  const import_options& options;
  cuda_peer& peer;
  gpu& device;
  bool emulated;

  [[nodiscard]] pinfold::cuda_ipc_importer importer() const {
    return pinfold::cuda_ipc_importer({.device = options.cuda.device});
  }

  /// Returns the way to read of that name.
  [[nodiscard]] std::unique_ptr<gpu_reader> reader(std::string_view subject, gpu_cache& cache) const {
    return make_reader<gpu_message, gpu_target>(subject, cache, [this] { return importer(); });
  }

  /// Returns the kind that `--memory` says.
  [[nodiscard]] pinfold::cuda_memory_kind kind() const;

  /// Returns `count` messages of `bytes` bytes, or why the peer cannot make them all; then it has freed those it made.
  [[nodiscard]] pinfold::result<std::vector<gpu_message>> provide(pinfold::cuda_memory_kind kind, std::size_t count,
                                                                  std::size_t bytes) const;

  /// Returns a row with the parameters that all cases have.
  [[nodiscard]] json row(const char* subject, std::size_t size, pinfold::cuda_memory_kind kind) const;
};

/// Returns "allocations" or "segments", as in `--memory`.
[[nodiscard]] const char* name_of(pinfold::cuda_memory_kind kind) noexcept;

// The cases.
extern const perf_case<cuda_run> cuda_copy_case, cuda_open_case, cuda_identity_case, weight_sync_case;

}  // namespace tool
