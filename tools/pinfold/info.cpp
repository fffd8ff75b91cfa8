// SPDX-License-Identifier: BSD-3-Clause
// `pinfold info`: what works on this host, and why the rest does not.
#include "commands.hpp"
#include "failure.hpp"
#include "host.hpp"
#include "report.hpp"
#include "settings.hpp"
#include "sizes.hpp"

#include <pinfold/registrars/memfd.hpp>
#include <pinfold/settings.hpp>

#include <fmt/format.h>
#include <memory>

namespace tool {
namespace {

struct info_options {
  bool as_json = false;
  bool config = false;
};

json registrar_row(const char* via, pinfold::memfd_via how) {
  const auto works = pinfold::probe_memfd(how);
  return {{"kind", "registrar"},
          {"name", "memfd"},
          {"via", via},
          {"works", works.has_value()},
          {"why_not", works ? "" : pinfold::describe(works.error())}};
}

// Every back end in this build. Monitors watch local memory, which this version does not register yet.
json backends() {
  return {registrar_row("pidfd", pinfold::memfd_via::pidfd), registrar_row("scm", pinfold::memfd_via::scm)};
}

void print_backends(const json& rows) {
  fmt::print("\nRegistrars\n");
  for (const auto& row : rows) {
    const auto works = row.at("works").get<bool>();
    fmt::print("  {:<8}via {:<8}{}\n", row.at("name").get<std::string>(), row.at("via").get<std::string>(),
               works ? "works" : "does not work: " + row.at("why_not").get<std::string>());
  }
  fmt::print("\nMonitors\n  none in this version; explicit: import_cache::invalidate, import_cache::drop_peer\n");
}

void print_host(const json& host) {
  fmt::print("pinfold {}\n\nHost\n", host.at("pinfold").get<std::string>());
  fmt::print("  kernel  {} {}\n", host.at("kernel").get<std::string>(), host.at("machine").get<std::string>());
  fmt::print("  cpu     {} x {}\n", host.at("cpus").get<std::size_t>(), host.at("cpu_model").get<std::string>());
  fmt::print("  memory  {}, pages of {}\n", size_text(host.at("memory").get<std::size_t>()),
             size_text(host.at("page_size").get<std::size_t>()));
}

int show(const info_options& options) {
  if (options.config) {
    fmt::print("{}", pinfold::to_text(options_of_environment()));
    return 0;
  }
  const auto host = host_facts();
  const auto rows = backends();
  if (options.as_json) {
    print_json(host, rows);
  } else {
    print_host(host);
    print_backends(rows);
    fmt::print("\nSettings: pinfold info --config\n");
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, action& chosen) {
  auto options = std::make_shared<info_options>();
  auto* command = app.add_subcommand("info", "Shows version, host, and which back ends work here");
  auto* as_json = command->add_flag("--json", options->as_json, "print one JSON object");
  command->add_flag("--config", options->config, "print the settings in force as a file for PINFOLD_CONFIG")
      ->excludes(as_json);
  command->callback([options, &chosen] { chosen = [options] { return show(*options); }; });
}

}  // namespace tool
