// SPDX-License-Identifier: BSD-3-Clause
// Processes whose main thread has ended have not ended.
#include "support/processes/main_thread.hpp"
#include "fd_passing/process.hpp"
#include "node_budget/process.hpp"
#include "observation/process_identity.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace pinfold::testing::main_thread_test {
namespace {

int go_on_without_main_thread(line& parent) {
  end_main_thread([&] {
    const bool told = wait_for_end_of_main_thread(::getpid()) && parent.send(true);
    return told && !parent.receive<int>() ? 0 : 1;
  });
}

class main_thread : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(child.talk().receive<bool>()); }
  child_process child{go_on_without_main_thread};
};

}  // namespace

TEST_F(main_thread, that_has_ended_does_not_end_what_a_process_publishes) {
  EXPECT_TRUE(observation::start_time_of(child.pid()));
  child.kill();
  EXPECT_FALSE(observation::start_time_of(child.pid()));
}

TEST_F(main_thread, that_has_ended_leaves_a_member_its_part_of_a_budget) {
  auto member = node::process_id::here();
  member.pid = static_cast<std::uint64_t>(child.pid());
  member.started = fd_passing::start_time_of(child.pid()).value();
  EXPECT_TRUE(member.known_to_run(member.namespace_inode));
  child.kill();
  EXPECT_FALSE(member.known_to_run(member.namespace_inode));
}

TEST_F(main_thread, that_has_ended_does_not_end_an_exporter) {
  const os::file process(static_cast<int>(::syscall(SYS_pidfd_open, child.pid(), 0)));
  ASSERT_TRUE(process);
  EXPECT_EQ(fd_passing::duplicate_from(process, 0).error(), errc::unsupported);
  child.kill();
  EXPECT_EQ(fd_passing::duplicate_from(process, 0).error(), errc::peer_gone);
}

}  // namespace pinfold::testing::main_thread_test
