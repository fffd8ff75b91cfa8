// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The subjects of `pinfold perf rma`: a rank's own buffers, registered with libfabric.
#pragma once

#include "perf/buffer_subject.hpp"
#include "perf/rma/fabric.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/options.hpp>
#include <pinfold/registrars/libfabric.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace tool {

using fabric_cache = pinfold::cache<pinfold::libfabric_registrar>;
using rma_subject = buffer_subject<pinfold::libfabric_registrar>;

struct rma_buffers {
  std::size_t count;
  std::size_t size;
};

/// `per-transfer`, `pinfold` or `pool`. Throws `failure`.
[[nodiscard]] std::unique_ptr<rma_subject> make_rma_subject(const std::string& name, const fabric_end& end,
                                                            const rma_buffers& buffers,
                                                            const pinfold::cache_options& cache);

}  // namespace tool
