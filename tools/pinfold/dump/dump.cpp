// SPDX-License-Identifier: BSD-3-Clause
// `pinfold dump`: the caches and entries of another process.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "commands.hpp"
#include "dump/listing.hpp"

#include <pinfold/process_dump.hpp>

#include <fmt/format.h>
#include <memory>
#include <string>

namespace tool {
namespace {

struct dump_command {
  std::size_t process = 0;
  std::string order = "range";
  std::size_t limit = 0;
  bool as_json = false;
};

int dump(const dump_command& command) {
  auto found =
      need(pinfold::dump_process(static_cast<int>(command.process)), fmt::format("process {}", command.process));
  for (auto& cache : found.caches) sort_entries(cache.entries, command.order);
  fmt::print("{}", command.as_json ? as_json(found, command.limit) : as_text(found, command.limit));
  if (found.copies > 0) return found.unreadable == 0 ? success : something_failed;
  throw failure(fmt::format("process {} ({}) contains no copy of this library, or one of a release without `dump`",
                            found.process, found.command));
}

}  // namespace

void add_dump(CLI::App& app, action& chosen) {
  constexpr std::size_t most_processes = 4194304;  // PID_MAX_LIMIT
  auto command = std::make_shared<dump_command>();
  auto* own = app.add_subcommand("dump", "Shows the caches and entries of a process, also of one that hangs");
  own->add_option("process", command->process, "the id of the process")
      ->required()
      ->check(CLI::Range(std::size_t{1}, most_processes));
  own->add_option("--sort", command->order, "the order of the entries: range, bytes, age, hits or leases")
      ->check(CLI::IsMember({"range", "bytes", "age", "hits", "leases"}))
      ->capture_default_str();
  own->add_option("--limit", command->limit, "show at most this many entries of each cache; 0: all")
      ->capture_default_str();
  own->add_flag("--json", command->as_json, "print JSON");
  own->footer(
      "The process is not stopped and does nothing for this: entries that change at that moment may be seen in an\n"
      "earlier state, twice, or not at all. The right to trace the process is needed (ptrace(2)). The exit status is "
      "1\n"
      "if the process cannot be read, or contains no copy of the library. Flags: p persistent, b bypass, u unshared,\n"
      "d doomed, s stale, o open in progress in the driver. Access: r, w for the device on behalf of the process; R, "
      "W,\n"
      "A (atomic) for peers. An owner with ! has ended.");
  own->callback([command, &chosen] { chosen = [command] { return dump(*command); }; });
}

}  // namespace tool
