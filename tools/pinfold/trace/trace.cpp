// SPDX-License-Identifier: BSD-3-Clause
// `pinfold trace`: records the requests of a program that does not know of it.
#include "cli/failure.hpp"
#include "commands.hpp"

#include <pinfold/trace_file.hpp>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tool {
namespace {

// The status that shells use.
constexpr int cannot_run = 126;
constexpr int not_found = 127;
constexpr int killed = 128;

struct trace_command {
  std::string file;
  std::vector<std::string> program;
};

// Replaces an earlier trace, and no other file.
std::string fresh_trace(const std::string& wanted) {
  const auto path = std::filesystem::absolute(wanted).string();  // the program may change its directory
  if (const auto made = pinfold::trace_file::open(path); !made)
    throw usage_failure(fmt::format("{}: {}", wanted, pinfold::describe(made.error())));
  if (::truncate(path.c_str(), 0) != 0)
    throw usage_failure(fmt::format("{}: cannot truncate the file: {}", wanted, strerrordesc_np(errno)));
  static_cast<void>(need(pinfold::trace_file::open(path), wanted));  // with its first line
  return path;
}

// Ignores signals that the terminal sends to both: they are for the program.
class signals_ignored {
 public:
  signals_ignored() noexcept : interrupt_(std::signal(SIGINT, SIG_IGN)), quit_(std::signal(SIGQUIT, SIG_IGN)) {}
  signals_ignored(const signals_ignored&) = delete;
  signals_ignored& operator=(const signals_ignored&) = delete;
  ~signals_ignored() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGQUIT, quit_);
  }

 private:
  using handler = void (*)(int);
  handler interrupt_;
  handler quit_;
};

// Returns the `errno` value when the program cannot be started, else 0.
int start(std::vector<std::string>& program, pid_t& child) {
  std::vector<char*> arguments;
  for (auto& one : program) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  return ::posix_spawnp(&child, arguments.front(), nullptr, nullptr, arguments.data(), environ);
}

int wait_for(pid_t child) {
  const signals_ignored quiet;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw failure(fmt::format("cannot wait for the program: {}", strerrordesc_np(errno)));
  return status;
}

// Returns the program's exit status; 1 when that is 0 and nothing was recorded.
int conclude(const trace_command& command, int status, const pinfold::recorded_trace& trace) {
  const auto& name = command.program.front();
  if (WIFSIGNALED(status))
    fmt::print(stderr, "pinfold: {} was killed by signal {} ({}): its last requests may be missing\n", name,
               WTERMSIG(status), sigdescr_np(WTERMSIG(status)));
  if (trace.caches.empty())
    fmt::print(stderr, "pinfold: {} created no cache, or used another version of the library: nothing was recorded\n",
               name);
  if (!trace.caches.empty())
    fmt::print(stderr, "pinfold: {} requests of {} {} in {}\n", trace.requests.size(), trace.caches.size(),
               trace.caches.size() == 1 ? "cache" : "caches", command.file);
  if (WIFSIGNALED(status)) return killed + WTERMSIG(status);
  return WEXITSTATUS(status) == 0 && trace.caches.empty() ? 1 : WEXITSTATUS(status);
}

int record(trace_command& command) {
  const auto path = fresh_trace(command.file);
  ::setenv("PINFOLD_TRACE", path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): there is one thread
  pid_t child = 0;
  if (const int refused = start(command.program, child); refused != 0) {
    fmt::print(stderr, "pinfold: {}: {}\n", command.program.front(), strerrordesc_np(refused));
    return refused == ENOENT ? not_found : cannot_run;
  }
  const int status = wait_for(child);
  const auto trace = pinfold::read_trace(path);
  if (!trace) throw failure(fmt::format("{}: {}", trace.error().where, pinfold::describe(trace.error().cause)));
  return conclude(command, status, *trace);
}

}  // namespace

void add_trace(CLI::App& app, action& chosen) {
  auto command = std::make_shared<trace_command>();
  auto* own = app.add_subcommand("trace", "Records the requests of a program that uses the library, for `replay`");
  own->add_option("-o,--output", command->file, "output file; an earlier trace in the file is replaced")->required();
  own->add_option("program", command->program, "the program and its arguments, after --")->required();
  own->footer(
      "The exit status is that of the program, 128 plus the signal that killed the program, 127 when the program is\n"
      "not found, or 1 when the program created no cache. The program must use pinfold's shared or static library.");
  own->callback([command, &chosen] { chosen = [command] { return record(*command); }; });
}

}  // namespace tool
