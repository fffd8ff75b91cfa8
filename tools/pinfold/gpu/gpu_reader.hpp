// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ways to read a peer's GPU memory that the tool compares, as in reader.hpp for memory of the host.
#pragma once

#include "gpu/cuda_peer.hpp"
#include "gpu/gpu_target.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/cuda_ipc.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

namespace tool {

using gpu_cache = pinfold::import_cache<pinfold::cuda_ipc_importer>;

/// A part of a message.
struct gpu_part {
  const gpu_message& of;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

class gpu_reader {
 public:
  virtual ~gpu_reader() = default;

  /// Copies the part to the target's beginning.
  [[nodiscard]] virtual pinfold::result<void> read(const gpu_part& wanted, gpu_target& into) = 0;

  /// Returns how often the reader asked a driver to open something.
  [[nodiscard]] virtual std::uint64_t opens() const = 0;
};

/// Makes the reader with that name: "uncached" opens, copies and closes; "floor" copies from mappings that it opened
/// once and holds; "pinfold" goes through the cache, which must outlive it.
[[nodiscard]] std::unique_ptr<gpu_reader> make_gpu_reader(std::string_view name, gpu_cache& cache, int device);

}  // namespace tool
