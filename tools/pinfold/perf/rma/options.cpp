// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/options.hpp"

#include "cli/failure.hpp"
#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "info/host.hpp"
#include "perf/perf.hpp"

#include <pinfold/version.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tool {
namespace {

void add_what(CLI::App& app, rma_options& into, std::string& sizes) {
  app.add_option("--provider", into.provider, "libfabric provider, e.g. 'tcp;ofi_rxm', shm or 'verbs;ofi_rxm'")
      ->capture_default_str();
  app.add_option("--address", into.address, "this host's address for the transfers, if the provider uses IP");
  app.add_option("--sizes", sizes, "bytes of each transfer, e.g. 4K,64K,1M")->size()->capture_default_str();
  app.add_option("--operations", into.operations, "what is measured")
      ->delimiter(',')
      ->check(CLI::IsMember({"put", "get"}))
      ->default_str("put,get");
  app.add_option("--subjects", into.subjects, "how each rank registers its buffers")
      ->delimiter(',')
      ->check(CLI::IsMember({"per-transfer", "pinfold", "pool"}))
      ->default_str("per-transfer,pinfold,pool");
  app.add_number("--buffers", into.buffers, "buffers of each rank, used in turn", 1, 16384);
  app.add_number("--depth", into.depth, "concurrent transfers", 1, 4096);
  app.add_number("--iterations", into.iterations, "transfers of each row and rank", std::size_t{1},
                 std::size_t{100'000'000});
}

void add_meeting(CLI::App& app, rma_options& into) {
  app.add_option("HOST", into.host, "host on which another rank runs with --listen");
  app.add_flag("--listen", into.listen, "wait for the other ranks, which are started with this host as HOST");
  app.add_flag("--mpi", into.mpi, "use the ranks of mpirun");
  app.add_number("--ranks", into.ranks, "number of ranks, without --mpi; each puts to the next", 1, 256);
  app.add_number("--port", into.port, "TCP port of --listen; 0: any free port, which is printed", 0, 65535);
  app.add_seconds("--wait", into.wait, "seconds that --listen waits for the other ranks", 0.1, 86400.0);
  app.add_seconds("--timeout", into.timeout, "seconds without an answer after which a rank gives up", 0.1, 3600.0);
}

void add_output(CLI::App& app, rma_options& into) {
  app.add_flag("--remap", into.remap,
               "map new pages under each rank's buffers before each round, except the pool's, so that stale "
               "registrations are detected");
  app.add_option("--spoil", into.spoil,
                 "inject a fault: change a byte that arrived, or send a wrong key to the next rank")
      ->check(CLI::IsMember({"byte", "key"}));
  app.add_flag("--json", into.as_json, "print one JSON object");
  app.footer(
      "Without HOST, --listen or --mpi the command forks its ranks. On two hosts: --listen on one host, that host's "
      "name on the other, the same options on both. On many hosts: mpirun -n N pinfold perf rma --mpi.\n"
      "Exit status: 1 when a byte was wrong or a rank failed.");
}

void check_meeting(const rma_options& options) {
  const int ways =
      static_cast<int>(options.mpi) + static_cast<int>(options.listen) + static_cast<int>(!options.host.empty());
  if (ways > 1) throw usage_failure("--mpi, --listen and HOST exclude each other");
}

// Each rank of a host needs its window and the buffers of each subject.
void check_room(const rma_options& options) {
  const auto here = options.mpi || options.listen || !options.host.empty() ? 1 : options.ranks;
  check_memory(options.buffers * (options.subjects.size() + 1) * here, options.sizes, host_facts());
  if (options.depth > options.buffers)
    throw usage_failure(fmt::format("--depth {}: needs at least as many --buffers", options.depth));
}

}  // namespace

std::chrono::nanoseconds rma_options::time_limit() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
}

std::string rma_options::agreement() const {
  return fmt::format("pinfold " PINFOLD_VERSION
                     ", --provider {} --sizes {} --operations {} --subjects {} --buffers {} "
                     "--depth {} --iterations {}{}{}",
                     provider, fmt::join(sizes, ","), fmt::join(operations, ","), fmt::join(subjects, ","), buffers,
                     depth, iterations, remap ? " --remap" : "", spoil.empty() ? "" : " --spoil " + spoil);
}

std::optional<rma_options> rma_options_from(int argc, char** argv) {
  rma_options options;
  std::string sizes = "4K,64K,1M";
  CLI::App app("Puts and gets between processes and hosts over libfabric: each rank to the next one's memory.",
               "pinfold perf rma");
  add_what(app, options, sizes);
  add_meeting(app, options);
  add_output(app, options);
  if (const auto ended = app.parse(argc, argv)) {
    if (*ended == 0) return std::nullopt;
    throw usage_failure("");  // it was printed already
  }
  options.sizes = parse_sizes(sizes);
  options.cache = options_of_environment();
  check_meeting(options);
  check_room(options);
  return options;
}

}  // namespace tool
