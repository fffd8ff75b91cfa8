// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/process.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace fd_process_test {
namespace {

using pinfold::errc;

TEST(fd_process, this_process_started_after_init) {
  const auto own = pinfold::fd_passing::start_time_of(::getpid());
  const auto first = pinfold::fd_passing::start_time_of(1);
  ASSERT_TRUE(own && first);
  EXPECT_GE(*own, *first);
  EXPECT_EQ(pinfold::fd_passing::start_time_of(::getpid()).value(), *own);
}

TEST(fd_process, this_process_has_its_own_number) {
  EXPECT_EQ(pinfold::fd_passing::own_number_of(::getpid()), ::getpid());
  EXPECT_EQ(pinfold::fd_passing::own_number_of(0x7fff'fffe).error(), errc::driver_error);
}

TEST(fd_process, start_time_of_a_missing_process_is_peer_gone) {
  const auto none = pinfold::fd_passing::start_time_of(0x7fff'fffe);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), errc::peer_gone);
}

TEST(fd_process, main_thread_of_a_dead_process_ends_until_it_is_reaped) {
  EXPECT_FALSE(pinfold::fd_passing::main_thread_ends(::getpid()));
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t seen{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &seen, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(pinfold::fd_passing::main_thread_ends(child));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(pinfold::fd_passing::main_thread_ends(child));
}

}  // namespace
}  // namespace fd_process_test
