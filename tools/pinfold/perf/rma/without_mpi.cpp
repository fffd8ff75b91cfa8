// SPDX-License-Identifier: BSD-3-Clause
#include "cli/failure.hpp"
#include "perf/rma/peers.hpp"

namespace tool {

std::unique_ptr<rma_peers> mpi_peers() { throw failure("unsupported: this program was built without MPI"); }

}  // namespace tool
