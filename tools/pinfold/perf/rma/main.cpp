// SPDX-License-Identifier: BSD-3-Clause
// The program that `pinfold perf rma` becomes.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "perf/rma/interrupts.hpp"
#include "perf/rma/options.hpp"
#include "perf/rma/peers.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <string>

namespace {

// Prints the failure before it tells the other ranks, since with MPI that ends this process.
int give_up(tool::rma_peers& peers, const std::exception& problem, tool::exit_status status) {
  tool::end_if_interrupted();
  if (*problem.what() == '\0') return status;  // it was printed where it happened
  tool::complain(fmt::format("rank {}: ", peers.rank()), problem, status);
  peers.give_up(problem.what());
  return status;
}

// ofi_rxm makes queues for this many peers, 256 by default, and few devices have such long ones.
void size_queues(const std::string& ranks) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  ::setenv("FI_UNIVERSE_SIZE", ranks.c_str(), 0);
}

// libfabric reads the variable once, possibly during MPI's initialisation.
void size_queues_for_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* said = std::getenv(name)) size_queues(said);  // NOLINT(concurrency-mt-unsafe): the same
}

int run(const tool::rma_options& options) {
  if (options.mpi) size_queues_for_mpi();
  const auto peers = tool::meet_peers(options);
  size_queues(fmt::to_string(std::max<std::size_t>(peers->ranks(), 2)));
  try {
    return tool::run_rma(*peers, options);
  } catch (const tool::usage_failure& problem) {
    return give_up(*peers, problem, tool::wrong_usage);
  } catch (const std::exception& problem) {
    return give_up(*peers, problem, tool::something_failed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return tool::run_to_exit([&]() -> int {
    tool::hold_interrupts();
    static_cast<void>(pinfold::turn_off_libfabric_cache());  // before MPI calls libfabric
    const auto options = tool::rma_options_from(argc, argv);
    return options ? run(*options) : tool::success;
  });
}
