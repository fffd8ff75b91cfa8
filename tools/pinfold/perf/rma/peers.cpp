// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/peers.hpp"

#include "cli/failure.hpp"
#include "perf/rma/interrupts.hpp"
#include "perf/rma/options.hpp"

#include <thread>
#include <utility>

namespace tool {

per_rank rma_peers::all_gather(std::string own, std::chrono::nanoseconds time_limit,
                               const std::function<void()>& meanwhile) {
  const auto deadline = std::chrono::steady_clock::now() + time_limit;
  begin(std::move(own));
  while (!complete()) {
    meanwhile();
    if (std::chrono::steady_clock::now() > deadline)
      throw failure(fmt::format("timed_out: no message from {} within {:.1f} s", missing(),
                                std::chrono::duration<double>(time_limit).count()));
    std::this_thread::yield();
  }
  return take();
}

std::unique_ptr<rma_peers> meet_peers(const rma_options& options) {
  if (!options.mpi && !options.listen && options.host.empty()) return fork_peers(options);
  take_interrupts({});
  if (options.mpi) return mpi_peers();
  return options.listen ? listen_for_peers(options) : connect_to_peers(options);
}

}  // namespace tool
