// SPDX-License-Identifier: BSD-3-Clause
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "commands.hpp"
#include "info/clients.hpp"

#include <pinfold/version.hpp>

namespace {

int run(int argc, char** argv) {
  tool::hand_over_rma(argc, argv);
  tool::answer_driver_facts(argc, argv);
  tool::answer_whether_loadable(argc, argv);
  tool::CLI::App app("pinfold: registers memory once, reuses registrations safely, and never returns a stale one.",
                     "pinfold");
  app.set_version_flag("--version", "pinfold " PINFOLD_VERSION);
  app.require_subcommand(0, 1);  // with 1, 1 a misspelt subcommand would be reported as missing
  tool::action chosen;
  tool::add_info(app, chosen);
  tool::add_demo(app, chosen);
  tool::add_run(app, chosen);
  tool::add_trace(app, chosen);
  tool::add_replay(app, chosen);
  tool::add_monitord(app, chosen);
  auto* perf = app.add_subcommand("perf", "Measures what the cache gains on this machine");
  perf->require_subcommand(0, 1);
  tool::add_perf_import(*perf, chosen);
  tool::add_perf_register(*perf, chosen);
  tool::add_perf_io(*perf, chosen);
  tool::add_perf_speed(*perf, chosen);
  tool::add_perf_monitor(*perf, chosen);
  tool::add_perf_rma(*perf, chosen);
  tool::add_perf_startup(*perf, chosen);
  if (const auto ended = app.parse(argc, argv)) return *ended == 0 ? tool::success : tool::wrong_usage;
  if (!chosen) throw tool::usage_failure("a subcommand is required; pinfold --help lists them");
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  return tool::run_to_exit([&] { return run(argc, argv); });
}
