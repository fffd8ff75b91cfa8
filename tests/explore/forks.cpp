// SPDX-License-Identifier: BSD-3-Clause
#include "forks.hpp"

#include "scheduler.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace pinfold::explore {

namespace {

constexpr unsigned longest_child_seconds = 20;  // of real time: the child spins

[[noreturn]] void run_child(const std::function<void()>& act) {
  ::alarm(longest_child_seconds);
  act();
  if (::testing::Test::HasFailure()) all_threads.fail("an expectation failed, see above");
  ::_exit(0);
}

}  // namespace

void fork_here(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child < 0) all_threads.fail("cannot fork: %d", errno);
  if (child == 0) run_child(act);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) all_threads.fail("the child ended by signal %s", ::strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) all_threads.fail("the child ended with status %d", WEXITSTATUS(status));
}

}  // namespace pinfold::explore
