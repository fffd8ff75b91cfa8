// SPDX-License-Identifier: BSD-3-Clause
// `pinfold dump`: the caches and entries of another process, or of a core file.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "cli/printable.hpp"
#include "commands.hpp"
#include "dump/listing.hpp"

#include <pinfold/process_dump.hpp>

#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>

namespace tool {
namespace {

struct dump_command {
  std::size_t process = 0;
  int memory = -1;
  std::string core;
  std::string order = "range";
  std::size_t limit = 0;
  std::optional<std::uintptr_t> address;
  bool as_json = false;
};

pinfold::process_dump read(const dump_command& command) {
  if (!command.core.empty()) return need(pinfold::dump_core_file(command.core), command.core);
  if (command.process == 0) throw usage_failure("dump needs the id of a process, or --core");
  return need(pinfold::dump_process(static_cast<int>(command.process), command.memory),
              fmt::format("process {}", command.process));
}

int dump(const dump_command& command) {
  auto found = read(command);
  if (command.address) keep_entries_at(found, *command.address);
  for (auto& cache : found.caches) sort_entries(cache.entries, command.order);
  if (command.as_json)
    print_json(found, command.limit);
  else
    fmt::print("{}", as_text(found, command.limit, command.address));
  if (found.copies > 0) return found.unreadable == 0 ? success : something_failed;
  throw failure(fmt::format("{}process {} ({}) contains no copy of this library, or one of a release without `dump`",
                            found.core ? "the core file of " : "", found.process, printable(found.command)));
}

}  // namespace

void add_dump(CLI::App& app, action& chosen) {
  constexpr std::size_t most_processes = 4194304;  // PID_MAX_LIMIT
  auto command = std::make_shared<dump_command>();
  auto* own = app.add_subcommand(
      "dump", "Shows the caches and entries of a process, also of one that hangs, or of a core file");
  auto* process = own->add_option("process", command->process, "the id of the process")
                      ->check(CLI::Range(std::size_t{1}, most_processes));
  own->add_option("--core", command->core, "the core file of a process instead")->excludes(process);
  own->add_option("--at", command->address,
                  "show only the entries that contain this address, for example 0x7f0012340000");
  own->add_option("--sort", command->order, "the order of the entries: range, bytes, age, hits or leases")
      ->check(CLI::IsMember({"range", "bytes", "age", "hits", "leases"}))
      ->capture_default_str();
  own->add_option("--limit", command->limit, "show at most this many entries of each cache; 0: all")
      ->capture_default_str();
  own->add_option("--memory", command->memory,
                  "a descriptor of the process's /proc/PID/mem, from a debugger that may open it")
      ->needs(process);
  own->add_flag("--json", command->as_json, "print JSON");
  own->footer(
      "The process is not stopped and does nothing for this: entries that change at that moment may be seen in "
      "an earlier state, twice, or not at all. The right to trace the process is needed (ptrace(2)). The exit "
      "status is 1 if the process cannot be read, or contains no copy of the library. Flags: p persistent, b "
      "bypass, u unshared, d doomed, s stale, o open in progress in the driver. Access: r, w for the device on "
      "behalf of the process; R, W, A (atomic) for peers. An owner with ! has ended. For imported memory, an "
      "address of the process or of the exporter is looked for. In a core file, an age is that when the newest "
      "entry was opened.");
  own->callback([command, &chosen] { chosen = [command] { return dump(*command); }; });
}

}  // namespace tool
