// SPDX-License-Identifier: BSD-3-Clause
#include "runs.hpp"

#include "core/sync_point.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <link.h>
#include <new>
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

extern const char executable_start __asm__("__executable_start");

namespace pinfold::explore {

namespace {

constexpr unsigned longest_seconds = 60;  // of real time: a thread is in a call that the scheduler does not know

// A schedule may depend on addresses, and shall be the same in the next process.
[[gnu::constructor]] void fix_addresses(int /*count*/, char** arguments, char** /*environment*/) {
  const auto now = static_cast<unsigned>(::personality(0xffffffffU));
  if ((now & ADDR_NO_RANDOMIZE) != 0 || ::personality(now | ADDR_NO_RANDOMIZE) < 0) return;
  if ((static_cast<unsigned>(::personality(0xffffffffU)) & ADDR_NO_RANDOMIZE) != 0)
    ::execv("/proc/self/exe", arguments);
}

// One thread runs at a time, so a second processor only makes the turns slow.
void stay_on_this_processor() noexcept {
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<std::size_t>(std::max(0, ::sched_getcpu())), &here);
  static_cast<void>(::sched_setaffinity(0, sizeof here, &here));
}

report& shared() {
  static auto* const made = [] {
    void* memory = ::mmap(nullptr, sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<report*>(memory);
  }();
  return *made;
}

[[noreturn]] void run_here(std::uint64_t first, std::uint64_t last, const std::function<schedule(std::uint64_t)>& make,
                           report& into) {
  stay_on_this_processor();
  core::at_point = []() noexcept { point("sync"); };
  for (auto number = first;; ++number) {
    ::alarm(longest_seconds);
    into.begin(number);
    const schedule one = make(number);
    into.traced = one.how.traced;
    all_threads.begin(one.how, into);
    one.threads();
    if (::testing::Test::HasFailure()) all_threads.fail("an expectation failed, see above");
    into.all_steps += into.steps;
    if (!all_threads.end() || number == last) break;
  }
  std::fflush(stdout);
  ::_exit(0);
}

std::string failure_of(int status, const report& from) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (from.failure[0] != 0) return from.failure.data();
  if (WIFSIGNALED(status)) return std::string("the process ended by signal ") + ::strsignal(WTERMSIG(status));
  return "the process ended with status " + std::to_string(WEXITSTATUS(status));
}

// Names the functions of a turn with addr2line, if there is one; without the explorer's.
void print_frames(const report::turn& turn) {
  std::string command = "addr2line -Cfpe /proc/" + std::to_string(::getpid()) + "/exe";
  for (int i = 0; i < turn.depth; ++i) {
    std::array<char, 32> text{};
    const auto* at = static_cast<const char*>(turn.frames[static_cast<std::size_t>(i)]);
    std::snprintf(text.data(), text.size(), " 0x%tx", at - &executable_start - 1);
    command += text.data();
  }
  auto* const out = ::popen((command + " 2>/dev/null | grep -o '^pinfold::.* at .*/src/.*' | head -3").c_str(), "r");
  if (out == nullptr) return;
  std::array<char, 400> line{};
  while (std::fgets(line.data(), line.size(), out) != nullptr) std::printf("          %s", line.data());
  ::pclose(out);
}

void print(const report& from) {
  const auto turns = std::min<std::uint64_t>(from.turns, from.trace.size());
  for (std::uint64_t i = 0; i < turns; ++i) {
    const auto& turn = from.trace[i];
    std::printf("%8u  %s: %s", turn.step, from.names[turn.from].data(), turn.what);
    if (turn.to != turn.from) std::printf("; %s goes on", from.names[turn.to].data());
    std::printf("\n");
    print_frames(turn);
  }
}

}  // namespace

outcome run(const plan& how, const std::function<void()>& threads) {
  return run_series(0, 0, [&](std::uint64_t /*number*/) { return schedule{how, threads}; }).last;
}

series_outcome run_series(std::uint64_t first, std::uint64_t last, const std::function<schedule(std::uint64_t)>& make) {
  report& into = shared();
  into.all_steps = 0;
  for (;; first = into.number + 1) {
    into.begin(first);
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child < 0) return {{std::string("cannot fork: ") + std::strerror(errno), 0, 0, 0}, first, into.all_steps};
    if (child == 0) run_here(first, last, make, into);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    auto failure = failure_of(status, into);
    if (failure.empty() && into.number < last) continue;
    if (into.traced) print(into);
    return {{std::move(failure), into.steps, into.others, into.hash}, into.number, into.all_steps};
  }
}

}  // namespace pinfold::explore
