// SPDX-License-Identifier: BSD-3-Clause
// `pinfold run`: runs a program that does not know of pinfold with an adapter for the library that it uses.
#include "cli/child_program.hpp"
#include "cli/failure.hpp"
#include "commands.hpp"
#include "run/clients.hpp"
#include "run/loadable.hpp"

#include <pinfold/settings.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace tool {
namespace {

// The status that shells use.
constexpr int cannot_run = 126;
constexpr int not_found = 127;

struct run_command {
  std::vector<std::string> clients;
  bool statistics = false;
  std::vector<std::string> limits;
  std::vector<std::string> program;
};

// NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
void set(const std::string& name, const std::string& value) { ::setenv(name.c_str(), value.c_str(), 1); }

void apply(const client_variable& one) {
  const char* const earlier = std::getenv(one.name.c_str());
  std::string value = earlier != nullptr && *earlier != '\0' ? earlier : one.standard;
  if (one.value.empty())
    ::unsetenv(one.name.c_str());
  else if (one.separator == 0 || value.empty())
    set(one.name, one.value);
  else if (const auto end = value.find(one.separator); one.where == client_variable::first)
    set(one.name, one.value + one.separator + value);
  else
    set(one.name, value.insert(std::min(end, value.size()), one.separator + one.value));
}
// NOLINTEND(concurrency-mt-unsafe)

// Two variables for one setting: mpirun hands on to other hosts only those of Open MPI.
struct setting {
  std::string name;
  std::string parameter;  // of the component for Open MPI
  std::string value;
};

void set_for(const std::vector<std::string>& clients, const setting& one) {
  set(one.name, one.value);
  if (std::ranges::find(clients, "openmpi") != clients.end())
    set("OMPI_MCA_rcache_pinfold_" + one.parameter, one.value);
}

// Reads `bytes=64M` or `count=1000`. Returns the setting of the same meaning.
setting setting_of(const std::string& limit) {
  const auto equals = limit.find('=');
  const auto kind = limit.substr(0, equals);
  if (equals == std::string::npos || (kind != "bytes" && kind != "count"))
    throw usage_failure(fmt::format("--limit {}: expected bytes=SIZE or count=NUMBER", limit));
  const std::string name = kind == "bytes" ? "PINFOLD_MAX_BYTES" : "PINFOLD_MAX_COUNT";
  const auto value = limit.substr(equals + 1);
  const auto text = fmt::format("{}={}", name, value);
  if (const auto read = pinfold::options_from_text(text, "--limit", {}); !read)
    throw usage_failure(fmt::format("--limit {}: {}", limit, read.error().cause.message));
  return {name, "max_" + kind, value};
}

// Returns only if the program cannot be started.
int become(std::vector<std::string>& program) {
  std::vector<char*> arguments;
  for (auto& one : program) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  const int refused = errno;
  fmt::print(stderr, "pinfold: {}: {}\n", program.front(), strerrordesc_np(refused));
  return refused == ENOENT ? not_found : cannot_run;
}

// A client that cannot load its adapter may end every program, or complain in every process.
void add_adapter(const std::string& client) {
  const auto adapter = adapter_for(client, tool_path().parent_path());
  auto why_not = why_not_nameable(client, adapter);
  if (why_not.empty()) why_not = why_not_loadable(adapter);
  if (!why_not.empty())
    fmt::print(stderr, "pinfold: the program runs without the adapter for {}, which cannot be loaded: {}\n", client,
               why_not);
  else
    for (const auto& one : variables_for(client, adapter)) apply(one);
}

int run(run_command& command) {
  for (const auto& limit : command.limits) set_for(command.clients, setting_of(limit));
  if (command.statistics) set_for(command.clients, {"PINFOLD_STATISTICS_AT_EXIT", "print_stats", "on"});
  if (const auto read = pinfold::options_from_environment(); !read)
    throw usage_failure(fmt::format("{}: {}", read.error().where, pinfold::describe(read.error().cause)));
  for (const auto& client : command.clients) add_adapter(client);
  return become(command.program);
}

}  // namespace

void add_run(CLI::App& app, action& chosen) {
  auto command = std::make_shared<run_command>();
  auto* own = app.add_subcommand("run", "Runs an unmodified program over pinfold, by an adapter for what it uses");
  own->add_option("--for", command->clients, "what the program uses; may be given several times")
      ->required()
      ->check(CLI::IsMember(client_names()))
      ->allow_extra_args(false);
  own->add_flag("--stats", command->statistics, "let each process print at its end what its caches did");
  own->add_option("--limit", command->limits, "budget of each cache: bytes=64M, count=1000, or both with a comma")
      ->delimiter(',')
      ->allow_extra_args(false);
  own->add_option("program", command->program, "the program and its arguments, after --")->required();
  own->footer(
      "The exit status is that of the program, 127 when the program is not found, 126 when it cannot be run, or 1 "
      "when the adapter is not installed. The PINFOLD_ variables of the environment set the other options of the "
      "caches.");
  own->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace tool
