// SPDX-License-Identifier: BSD-3-Clause
// `pinfold demo`: the whole system in a few seconds, on real processes.
#include "cli/failure.hpp"
#include "cli/settings.hpp"
#include "commands.hpp"
#include "demo/stage.hpp"
#include "info/host.hpp"

#include <pinfold/statistics.hpp>

#include <fmt/format.h>
#include <memory>
#include <string>

namespace tool {
namespace {

struct demo_options {
  pinfold::memfd_via via = pinfold::memfd_via::automatic;
  bool emulated = false;
  std::string library;
};

void print_opening(demo_stage& stage, pinfold::memfd_via via) {
  const auto host = host_facts();
  fmt::print("pinfold {} demo\n\n", host.at("pinfold").get<std::string>());
  fmt::print("  host      {}\n", host_line(host));
  fmt::print("  memory    memfd, the stand-in for GPU memory; descriptors fetched via {}\n", name_of(via));
  fmt::print("  exporters peers 0 and 1, processes {} and {}\n", stage.peer(0).pid(), stage.peer(1).pid());
  fmt::print("  importer  this process, with one cache over both peers\n");
}

int play(pinfold::memfd_via via) {
  demo_stage stage(via);
  print_opening(stage, via);
  fmt::print("\nMessages from both peers in turn, the cache off and on; every byte checked\n\n");
  show_messages(stage);
  fmt::print("\nWhat the cache is for\n\n");
  show_scenarios(stage);
  fmt::print("\nThis process's own memory, registered with io_uring and written to a file\n\n");
  show_local();
  fmt::print("\nCounters of the messages' cache\n\n{}", paragraph("  ", pinfold::describe(stage.counters())));
  fmt::print("\nEvery byte and every counter is correct. The times are of this run only, and are\nno benchmark.\n");
  return 0;
}

int play_emulated(const std::string& library) {
  fmt::print("pinfold {} demo\n\n", host_facts().at("pinfold").get<std::string>());
  show_cuda(library);
  return 0;
}

int play(const demo_options& options) {
  check_environment();
  return options.emulated ? play_emulated(options.library) : play(options.via);
}

}  // namespace

void add_demo(CLI::App& app, action& chosen) {
  auto options = std::make_shared<demo_options>();
  auto* command = app.add_subcommand("demo", "Shows with real processes what the cache does, and checks every byte");
  add_via(*command, options->via, {"auto", "pidfd", "scm"});
  auto* emulated = command->add_flag("--emulated", options->emulated,
                                     "use GPU memory instead, over pinfold's emulation of the CUDA driver");
  emulated->excludes(command->get_option("--via"));
  command->add_option("--library", options->library, "path of the emulation [PINFOLD_CUDA_LIBRARY]")->needs(emulated);
  command->callback([options, &chosen] { chosen = [options] { return play(*options); }; });
}

}  // namespace tool
