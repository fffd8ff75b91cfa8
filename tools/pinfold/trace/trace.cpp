// SPDX-License-Identifier: BSD-3-Clause
// `pinfold trace`: records the requests of a program that does not know of it.
#include "cli/failure.hpp"
#include "cli/replaced_file.hpp"
#include "commands.hpp"
#include "trace/inputs.hpp"

#include <pinfold/trace_file.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <spawn.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
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

// Returns the path without links, so that a link stays one.
std::string resolved(const std::string& wanted) {
  std::error_code refused;
  auto path = std::filesystem::absolute(wanted, refused);
  if (!refused) path = std::filesystem::weakly_canonical(path, refused);
  if (refused) throw usage_failure(fmt::format("{}: cannot write the file: {}", wanted, refused.message()));
  return path.string();
}

// A new trace beside the file, which takes its place once something is recorded. Replaces an earlier trace, and no
// other file.
class recording {
 public:
  explicit recording(const std::string& wanted) : wanted_(wanted), path_(resolved(wanted)) {
    if (const auto why = why_not_replaced()) throw usage_failure(fmt::format("{}: {}", wanted, *why));
    beside_ = path_ + ".XXXXXX";
    const int made = ::mkostemp(beside_.data(), O_CLOEXEC);
    if (made < 0) throw usage_failure(fmt::format("{}: cannot write the file: {}", wanted, strerrordesc_np(errno)));
    const int refused = ::fchmod(made, usual_mode()) == 0 ? 0 : errno;
    ::close(made);
    if (refused != 0) throw failure(fmt::format("{}: cannot be made: {}", beside_, strerrordesc_np(refused)));
    static_cast<void>(need(pinfold::trace_file::open(beside_), beside_));  // with its first line
  }
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  ~recording() {
    if (!beside_.empty()) ::unlink(beside_.c_str());
  }

  [[nodiscard]] const std::string& path() const noexcept { return beside_; }

  void replace() {
    // Meanwhile the program may have made another file there.
    if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) return beside_.clear();
    auto why = why_not_replaced();
    if (!why && std::rename(beside_.c_str(), path_.c_str()) == 0) return beside_.clear();
    if (!why) why = strerrordesc_np(errno);
    throw failure(fmt::format("{}: cannot be replaced: {}; the trace is {}", wanted_, *why, leave()));
  }
  // Keeps it under its own name, which it returns.
  std::string leave() { return std::exchange(beside_, {}); }

 private:
  // Returns why the file must stay; nothing if it is an earlier trace, or empty, or there is none.
  [[nodiscard]] std::optional<std::string> why_not_replaced() const {
    std::error_code none;
    if (!std::filesystem::exists(path_, none) || (std::filesystem::file_size(path_, none) == 0 && !none)) return {};
    const auto earlier = pinfold::trace_file::open(path_);
    return earlier ? std::nullopt : std::optional(pinfold::describe(earlier.error()));
  }

  std::string wanted_, path_, beside_;
};

constexpr std::array passed_on{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
std::atomic<pid_t> program{0};

// The terminal sends its signals to the program, too.
void pass_on(int signal, siginfo_t* from, void* /*context*/) {
  if (from->si_code != SI_KERNEL) ::kill(program.load(std::memory_order_seq_cst), signal);
}

// Passes signals that other processes send to this process on to the program, which decides when it ends. Signals wait
// while `start` runs.
class signals_passed_on {
 public:
  signals_passed_on() noexcept {
    sigset_t all{};
    ::sigemptyset(&all);
    for (const int one : passed_on) ::sigaddset(&all, one);
    ::pthread_sigmask(SIG_BLOCK, &all, &mask_);
  }
  signals_passed_on(const signals_passed_on&) = delete;
  signals_passed_on& operator=(const signals_passed_on&) = delete;
  ~signals_passed_on() {
    for (std::size_t i = 0; started_ && i < passed_on.size(); ++i)
      ::sigaction(passed_on.at(i), &earlier_.at(i), nullptr);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

  // Returns the `errno` value when the program cannot be started, else 0.
  int start(std::vector<std::string>& words, pid_t& child) {
    std::vector<char*> arguments;
    for (auto& one : words) arguments.push_back(one.data());
    arguments.push_back(nullptr);
    posix_spawnattr_t attributes{};
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    ::posix_spawnattr_setsigmask(&attributes, &mask_);
    const int refused = ::posix_spawnp(&child, arguments.front(), nullptr, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    if (refused == 0) begin(child);
    return refused;
  }

 private:
  void begin(pid_t child) noexcept {
    program.store(child, std::memory_order_seq_cst);
    struct sigaction action{};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < passed_on.size(); ++i) {
      ::sigaction(passed_on.at(i), nullptr, &earlier_.at(i));
      if (earlier_.at(i).sa_handler != SIG_IGN) ::sigaction(passed_on.at(i), &action, nullptr);
    }
    started_ = true;
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

  sigset_t mask_{};
  std::array<struct sigaction, passed_on.size()> earlier_{};
  bool started_ = false;
};

int refuse(const std::string& name, int why) {
  fmt::print(stderr, "pinfold: {}: {}\n", name, strerrordesc_np(why));
  return why == ENOENT ? not_found : cannot_run;
}

// Waits until the program has ended, and leaves its number with it: a signal would go to another process else.
void wait_for(pid_t child) {
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0)
    if (errno != EINTR) throw failure(fmt::format("cannot wait for the program: {}", strerrordesc_np(errno)));
}

// Returns the program's exit status; 1 when that is 0 and nothing was recorded.
int conclude(const trace_command& command, int status, const pinfold::recorded_trace& trace,
             const std::string& failed) {
  const auto& name = command.program.front();
  if (WIFSIGNALED(status))
    fmt::print(stderr, "pinfold: {} was killed by signal {} ({}): its last requests may be missing\n", name,
               WTERMSIG(status), sigdescr_np(WTERMSIG(status)));
  if (trace.caches.empty())
    fmt::print(stderr, "pinfold: {} created no cache, or used another version of the library: nothing was recorded\n",
               name);
  if (!trace.caches.empty())
    fmt::print(stderr, "pinfold: {} requests of {} {} in {}{}{}\n", trace.requests.size(), trace.caches.size(),
               trace.caches.size() == 1 ? "cache" : "caches", command.file, failed.empty() ? "" : "; failed: ", failed);
  if (WIFSIGNALED(status)) return killed + WTERMSIG(status);
  return WEXITSTATUS(status) == 0 && trace.caches.empty() ? 1 : WEXITSTATUS(status);
}

int record(trace_command& command) {
  recording recorded(command.file);
  ::setenv("PINFOLD_TRACE", recorded.path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe): there is one thread
  pid_t child = 0;
  {
    signals_passed_on signals;
    if (const int refused = signals.start(command.program, child); refused != 0)
      return refuse(command.program.front(), refused);
    wait_for(child);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const auto trace = pinfold::read_trace(recorded.path());
  if (!trace) {
    static_cast<void>(recorded.leave());
    throw failure(fmt::format("{}: {}", trace.error().where, pinfold::describe(trace.error().cause)));
  }
  const auto failed = failures_text(read_notes(recorded.path()));
  if (!trace->caches.empty()) recorded.replace();
  return conclude(command, status, *trace, failed);
}

}  // namespace

void add_trace(CLI::App& app, action& chosen) {
  auto command = std::make_shared<trace_command>();
  auto* own = app.add_subcommand("trace", "Records the requests of a program that uses the library, for `replay`");
  own->add_option("-o,--output", command->file,
                  "output file; an earlier trace there is replaced once the program has ended and created a cache")
      ->required();
  own->add_option("program", command->program, "the program and its arguments, after --")->required();
  own->footer(
      "The exit status is that of the program, 128 plus the signal that killed the program, 127 when the program is "
      "not found, or 1 when the program created no cache. The program must use pinfold's shared or static library.");
  own->callback([command, &chosen] { chosen = [command] { return record(*command); }; });
}

}  // namespace tool
