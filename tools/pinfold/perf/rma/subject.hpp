// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A rank's own buffers, and the ways in which they are registered for a transfer.
#pragma once

#include "perf/rma/fabric.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/options.hpp>
#include <pinfold/registrars/libfabric.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tool {

using fabric_cache = pinfold::cache<pinfold::libfabric_registrar>;

class rma_subject {
 public:
  rma_subject() = default;
  rma_subject(const rma_subject&) = delete;
  rma_subject& operator=(const rma_subject&) = delete;
  virtual ~rma_subject() = default;

  [[nodiscard]] virtual std::span<std::byte> buffer(std::size_t number) noexcept = 0;

  /// Run before and after a transfer. `begin` returns the provider's descriptor of the buffer. `access` is the
  /// transfer's use of it.
  [[nodiscard]] virtual pinfold::result<void*> begin(std::size_t number, pinfold::access_flags access) noexcept = 0;
  [[nodiscard]] virtual pinfold::result<void> end(std::size_t number) noexcept = 0;

  /// Maps new pages under the buffers, at the same addresses: all registrations of them become stale.
  virtual void remap() {}

  /// Returns the monitors of its cache; empty when there is no cache.
  [[nodiscard]] virtual std::string monitors() const { return {}; }
};

struct rma_buffers {
  std::size_t count;
  std::size_t size;
};

/// `per-transfer`, `pinfold` or `pool`. Throws `failure`.
[[nodiscard]] std::unique_ptr<rma_subject> make_rma_subject(const std::string& name, const fabric_end& end,
                                                            const rma_buffers& buffers,
                                                            const pinfold::cache_options& cache);

}  // namespace tool
