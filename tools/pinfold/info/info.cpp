// SPDX-License-Identifier: BSD-3-Clause
// `pinfold info`: what works on this host, and why the rest does not.
#include "cli/failure.hpp"
#include "cli/report.hpp"
#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/clients.hpp"
#include "info/cuda.hpp"
#include "info/handle.hpp"
#include "info/host.hpp"
#include "info/node_budget.hpp"
#include "info/parts.hpp"
#include "perf/local/uring.hpp"

#include <pinfold/importers/memfd.hpp>
#include <pinfold/registrars/mlock.hpp>
#include <pinfold/settings.hpp>

#include <array>
#include <fmt/format.h>
#include <memory>
#include <string>

namespace tool {
namespace {

struct info_options {
  bool as_json = false;
  bool config = false;
  std::string node_budget;
  std::string handle;
};

json registrar_row(const char* name, const char* via, const pinfold::result<void>& works) {
  return {{"kind", "registrar"},
          {"name", name},
          {"via", via},
          {"works", works.has_value()},
          {"why_not", works ? "" : pinfold::describe(works.error())}};
}

// Finds the largest table that the kernel permits, on a ring of its own.
json uring_row() {
  auto ring = uring::open(1, 0);
  auto found = ring.and_then([](auto& made) { return made->registrar(); });
  auto row = registrar_row("io_uring", "ring", found.map([](const auto&) {}));
  if (found) {
    row["slots"] = found->slots();
    row["largest"] = found->limits().max_bytes;
  }
  return row;
}

// Locks one page for a moment.
pinfold::result<void> try_mlock() {
  alignas(4096) static std::array<std::byte, 4096> page;
  pinfold::mlock_registrar registrar;
  const auto begin = reinterpret_cast<std::uintptr_t>(page.data());
  return registrar.open({begin, begin + page.size()}, pinfold::local_access).and_then([&](const auto& made) {
    return registrar.close(made);
  });
}

// Returns a row for every back end in this build that depends on the host.
json backends() {
  return {registrar_row("memfd", "pidfd", pinfold::probe_memfd(pinfold::memfd_via::pidfd)),
          registrar_row("memfd", "scm", pinfold::probe_memfd(pinfold::memfd_via::scm)), uring_row(),
          registrar_row("mlock", "mlock", try_mlock())};
}

std::string table_text(const json& row) {
  if (!row.contains("slots")) return {};
  return fmt::format(": {} buffers of at most {}", row.at("slots").get<unsigned>(),
                     size_text(row.at("largest").get<std::size_t>()));
}

void print_backends(const json& rows) {
  fmt::print("\nRegistrars\n");
  for (const auto& row : rows) {
    const auto works = row.at("works").get<bool>();
    const auto head =
        fmt::format("  {:<10}via {:<8}", row.at("name").get<std::string>(), row.at("via").get<std::string>());
    fmt::print("{}", paragraph(head, (works ? "works" : "does not work: " + row.at("why_not").get<std::string>()) +
                                         table_text(row)));
  }
}

void print_host(const json& host) {
  fmt::print("pinfold {}\n\nHost\n", host.at("pinfold").get<std::string>());
  fmt::print("  kernel  {} {}\n", host.at("kernel").get<std::string>(), host.at("machine").get<std::string>());
  fmt::print("  cpu     {} x {}\n", host.at("cpus").get<std::size_t>(), host.at("cpu_model").get<std::string>());
  fmt::print("  memory  {}, pages of {}\n", size_text(host.at("memory").get<std::size_t>()),
             size_text(host.at("page_size").get<std::size_t>()));
  fmt::print("  huge    {}\n", huge_pages_line(host));
  fmt::print("{}", paragraph("  pinned  ", memlock_line(host)));
}

int show_handle(const info_options& options) {
  const auto facts = handle_facts(options.handle);
  if (options.as_json) {
    fmt::print("{}\n", facts.dump(2));
  } else {
    print_handle(facts);
  }
  return 0;
}

int show(const info_options& options) {
  if (!options.node_budget.empty()) {
    show_node_budget(options.node_budget, options.as_json);
    return 0;
  }
  if (!options.handle.empty()) return show_handle(options);
  const auto settings = options_of_environment();
  if (options.config) {
    fmt::print("{}", pinfold::to_text(settings));
    return 0;
  }
  const auto host = host_facts();
  const auto rows = backends();
  const auto monitors = monitor_facts();
  const auto cuda = cuda_facts();
  const auto rdma = rdma_facts();
  const auto clients = client_facts();
  if (options.as_json) {
    json whole{{"host", host}, {"rows", rows}};
    whole["cuda"] = cuda;
    whole["rdma"] = rdma;
    whole["clients"] = clients;
    whole.update(monitors);
    fmt::print("{}\n", whole.dump(2));
  } else {
    print_host(host);
    print_backends(rows);
    print_cuda(cuda);
    print_rdma(rdma);
    print_clients(clients);
    print_monitors(monitors);
    fmt::print("\nSettings: pinfold info --config\n");
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, action& chosen) {
  auto options = std::make_shared<info_options>();
  auto* command = app.add_subcommand(
      "info", "Shows the version, the host, the back ends that work here, and which monitors see memory unmapped");
  auto* as_json = command->add_flag("--json", options->as_json, "print one JSON object");
  auto* config =
      command->add_flag("--config", options->config, "print the settings in force as a file for PINFOLD_CONFIG")
          ->excludes(as_json);
  auto* budget =
      command
          ->add_option("--node-budget", options->node_budget,
                       "show the processes that share the account of this name, what each has taken, and which wait")
          ->excludes(config);
  command
      ->add_option("--handle", options->handle,
                   "FILE or hexadecimal digits: print what the handle is and needs, and whether it can be opened")
      ->excludes(config)
      ->excludes(budget);
  command->callback([options, &chosen] { chosen = [options] { return show(*options); }; });
}

}  // namespace tool
