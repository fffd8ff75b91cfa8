// SPDX-License-Identifier: BSD-3-Clause
#include "debugging/table.hpp"
#include "inspection/text_dump.hpp"
#include "os/file.hpp"
#include "os/mutex.hpp"
#include "os/no_cancellation.hpp"
#include "os/own_user.hpp"
#include "os/size_limit.hpp"
#include "os/this_process.hpp"

#include <pinfold/dump_on_signal.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold {

namespace {

using inspection::text;

// A destination of dumps. Never freed, because a handler may still read an earlier one.
struct destination {
  text<4000> directory;
  destination* earlier = nullptr;
};

constinit std::atomic<destination*> where{nullptr};
constinit os::mutex installing;
struct sigaction earlier_actions[NSIG];  // valid where `installed`
constinit std::array<std::atomic<bool>, NSIG> installed{};
constinit std::array<std::atomic<bool>, NSIG> called_once{};  // the earlier handler, if it is for one signal
constinit std::atomic<std::uint64_t> dumping_process{0};      // 0: none. A child of fork(2) may find its parent here

// Buffers of the thread that set `dumping_process`; static, because signal stacks are small.
inspection::text_dump dump;
constinit text<4096> dump_path;
constinit text<4300> complaint;

// Returns whether the file is this user's alone: other users may create files, pipes and links in a shared folder.
bool may_be_written(int descriptor) noexcept {
  struct stat seen{};
  return ::syscall(SYS_fstat, descriptor, &seen) == 0 && S_ISREG(seen.st_mode) && seen.st_nlink == 1 &&
         os::is_own_file(descriptor, seen);
}

// Reports that the file cannot be written. Returns the descriptor for the dump, standard error.
int standard_error_instead_of_file(const char* why) noexcept {
  complaint.clear();
  complaint << "pinfold: " << dump_path.view() << ": cannot write the file: " << why << '\n';
  const auto line = complaint.view();
  os::to_the_program([&] { return ::syscall(SYS_write, STDERR_FILENO, line.data(), line.size()); });
  return STDERR_FILENO;
}

// Does not wait for the reader of a pipe.
int open_file(const destination* in, int process) noexcept {
  if (in == nullptr || in->directory.view().empty()) return STDERR_FILENO;
  dump_path.clear();
  dump_path << in->directory.view() << "/pinfold." << process << ".dump";
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
  const int file =
      os::above_standard(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, dump_path.terminated(), flags, 0600)));
  if (file < 0) return standard_error_instead_of_file(::strerrordesc_np(errno));
  if (may_be_written(file)) return file;
  ::syscall(SYS_close, file);
  return standard_error_instead_of_file("it exists, and is not a file of this user's alone");
}

void dump_now(int signal) noexcept {
  const auto process = os::this_process();
  auto other = dumping_process.load(std::memory_order_relaxed);
  if (other == process || !dumping_process.compare_exchange_strong(other, process, std::memory_order_acquire)) return;
  const int file = open_file(where.load(std::memory_order_acquire), static_cast<int>(::syscall(SYS_getpid)));
  dump.write(file, reinterpret_cast<std::uintptr_t>(&debugging::pinfold_debug_v1), signal);
  if (file != STDERR_FILENO) ::syscall(SYS_close, file);
  dumping_process.store(0, std::memory_order_release);
}

// Returns whether the signal reports a fault of the process: such a signal ends the process, after the dump.
bool ends_process(int signal) noexcept {
  switch (signal) {
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSEGV:
    case SIGSYS:
    case SIGTRAP: return true;
    default: return false;
  }
}

bool is_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// Returns whether the kernel raised the signal for an instruction, which fails again when the handler returns.
bool is_fault(int signal, const siginfo_t& about) noexcept {
  const bool of_a_page_not_used = signal == SIGBUS && about.si_code == BUS_MCEERR_AO;
  return signal != SIGABRT && ends_process(signal) && about.si_code > 0 && !of_a_page_not_used;
}

// As the kernel would: a handler for one signal is called once (sigaction(2), SA_RESETHAND), and a fault that is
// ignored ends the process.
void do_what_was_done_earlier(int signal, siginfo_t* about, void* context) noexcept {
  auto action = earlier_actions[signal];
  if (is_handler(action) && (action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 &&
      called_once[static_cast<std::size_t>(signal)].exchange(true, std::memory_order_relaxed)) {
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
  }
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction(signal, about, context);
  if (is_handler(action)) return action.sa_handler(signal);
  if (action.sa_handler == SIG_IGN ? !is_fault(signal, *about) : !ends_process(signal)) return;
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  ::raise(signal);  // delivered when this handler returns
}

void handle(int signal, siginfo_t* about, void* context) {
  const int kept = errno;
  dump_now(signal);
  errno = kept;
  do_what_was_done_earlier(signal, about, context);
  errno = kept;
}

bool is_own(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle;
}
tl::unexpected<error> refused(int code) noexcept {
  return tl::unexpected<error>({code == EINVAL ? errc::invalid_argument : errc::driver_error, native_kind::posix, code,
                                "the system refuses a handler for this signal"});
}

result<void> install(int signal, earlier_handler earlier) noexcept PINFOLD_REQUIRES(installing) {
  struct sigaction now{};
  if (::sigaction(signal, nullptr, &now) != 0) return refused(errno);
  if (is_own(now)) return {};
  if (is_handler(now) && earlier == earlier_handler::refuse)
    return fail(errc::in_use_conflict, "the signal has a handler already");
  if (installed[static_cast<std::size_t>(signal)].load(std::memory_order_relaxed))  // the other may call `handle`
    return fail(errc::in_use_conflict, "the handler that dumps was replaced by another one");
  earlier_actions[signal] = now;
  struct sigaction own{};
  own.sa_sigaction = handle;
  own.sa_mask = now.sa_mask;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK | (is_handler(now) ? now.sa_flags & SA_RESTART : SA_RESTART);
  if (::sigaction(signal, &own, nullptr) != 0) return refused(errno);
  installed[static_cast<std::size_t>(signal)].store(true, std::memory_order_relaxed);
  return {};
}

struct named {
  const char* name;
  int number;
};
// Excludes signals that cannot be handled, and those that programs cannot do without.
constexpr named names[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ILL", SIGILL},       {"TRAP", SIGTRAP},
    {"ABRT", SIGABRT}, {"BUS", SIGBUS},   {"FPE", SIGFPE},   {"USR1", SIGUSR1},     {"SEGV", SIGSEGV},
    {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},     {"CONT", SIGCONT},
    {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU}, {"URG", SIGURG},       {"XCPU", SIGXCPU},
    {"XFSZ", SIGXFSZ}, {"PROF", SIGPROF}, {"IO", SIGIO},     {"VTALRM", SIGVTALRM}, {"WINCH", SIGWINCH},
    {"PWR", SIGPWR},   {"SYS", SIGSYS},
};

std::optional<int> signal_named(std::string_view text) noexcept {
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (const auto& one : names)
    if (text == one.name) return one.number;
  if (text.starts_with("RTMIN+")) {
    const auto above = signal_named(text.substr(6));
    return above ? std::optional(SIGRTMIN + *above) : std::nullopt;
  }
  int number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  return wrong == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

result<void> dump_on_signal(int signal, std::string_view directory, earlier_handler earlier) noexcept {
  const detail::no_cancellation guard;
  if (signal <= 0 || signal >= NSIG) return fail(errc::invalid_argument, "there is no such signal");
  std::array<char, 4001> here{};
  if (!directory.empty() && directory.front() != '/') {  // a later chdir(2) has no effect
    if (::getcwd(here.data(), here.size() - 1) == nullptr)
      return tl::unexpected<error>(
          {errc::driver_error, native_kind::posix, errno, "the working directory has no name"});
    here[std::strlen(here.data())] = '/';
  }
  const std::string_view before(here.data());
  if (before.size() + directory.size() > 4000)
    return fail(errc::invalid_argument, "the name of the directory is too long");
  std::unique_ptr<destination> fresh(new (std::nothrow) destination);
  if (!fresh)
    return tl::unexpected<error>(
        {errc::driver_error, native_kind::posix, ENOMEM, "there is no memory for the directory"});
  fresh->directory << before << directory;
  const os::scoped_lock lock(installing);
  fresh->earlier = where.load(std::memory_order_relaxed);
  if (auto done = install(signal, earlier); !done) return done;
  where.store(fresh.release(), std::memory_order_release);
  return {};
}

result<void> dump_on_signal_by_environment() noexcept {
  const char* const variable = ::secure_getenv("PINFOLD_DUMP_SIGNAL");
  if (variable == nullptr || *variable == '\0') return {};
  std::string_view wanted(variable);
  constexpr std::string_view chain = ",chain";
  const bool chains = wanted.ends_with(chain);
  if (chains) wanted.remove_suffix(chain.size());
  const auto signal = signal_named(wanted);
  if (!signal) return fail(errc::invalid_argument, "expected a signal, for example USR2, or USR2,chain");
  const char* const directory = ::secure_getenv("PINFOLD_DUMP_DIR");
  return dump_on_signal(*signal, directory != nullptr ? directory : "",
                        chains ? earlier_handler::chain : earlier_handler::refuse);
}

}  // namespace pinfold
