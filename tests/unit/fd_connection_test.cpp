// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/connection.hpp"

#include "fd_passing/process.hpp"
#include "support/doubles/forged.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <stop_token>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::fd_connection_test {
namespace {

struct fd_connection : ::testing::Test {
  os::file file = sealed_file(4096, all_seals);
  fd_passing::fd_request what = memfd::behind(handle_of(file, 4096));
  fd_passing::connection_table links;
};

TEST_F(fd_connection, each_exporter_has_one_connection) {
  const auto first = links.find_or_make(fd_passing::transport::pidfd, what.from).value();
  EXPECT_EQ(links.find_or_make(fd_passing::transport::pidfd, what.from).value(), first);
  what.from.exporter += 1;
  EXPECT_NE(links.find_or_make(fd_passing::transport::pidfd, what.from).value(), first);
}

TEST_F(fd_connection, forgotten_connection_is_replaced_and_the_old_one_stays_usable) {
  const auto first = links.find_or_make(fd_passing::transport::pidfd, what.from).value();
  links.forget(what.from);
  EXPECT_NE(links.find_or_make(fd_passing::transport::pidfd, what.from).value(), first);
  EXPECT_TRUE(links.forget_all());
  EXPECT_FALSE(links.forget_all());
  EXPECT_TRUE(first->fetch(fd_passing::transport::pidfd, what));
}

TEST_F(fd_connection, R4_fork_child_does_not_share_connections_with_its_parent) {
  // Both processes would read the other's answers, and a leftover answer could grant a buffer that has been freed
  // since.
  const auto first = links.find_or_make(fd_passing::transport::pidfd, what.from).value();
  child_process child(
      [&](line&) { return links.find_or_make(fd_passing::transport::pidfd, what.from).value() != first ? 0 : 1; });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_EQ(links.find_or_make(fd_passing::transport::pidfd, what.from).value(), first);
}

TEST_F(fd_connection, least_recently_used_connection_is_closed_at_the_limit) {
  const int before = open_descriptors();
  const auto first = links.find_or_make(fd_passing::transport::pidfd, what.from).value();
  fd_passing::exporter_id other = what.from;
  for (std::size_t i = 0; i < 2 * fd_passing::connection_table::most; ++i) {
    other.exporter += 1;
    ASSERT_TRUE(links.find_or_make(fd_passing::transport::pidfd, other));
    ASSERT_EQ(links.find_or_make(fd_passing::transport::pidfd, what.from).value(), first) << "was used just before";
  }
  EXPECT_EQ(open_descriptors() - before, static_cast<int>(fd_passing::connection_table::most));
}

TEST_F(fd_connection, R70_link_of_an_exporter_with_open_memory_is_kept_before_others) {
  const auto used = what.from;
  const auto watching = std::make_shared<fd_passing::connection_table>(
      [](const fd_passing::exporter_id&) {}, [&](const fd_passing::exporter_id& one) { return one == used; });
  const auto first = watching->find_or_make(fd_passing::transport::pidfd, used).value();
  fd_passing::exporter_id other = used;
  for (std::size_t i = 0; i < 2 * fd_passing::connection_table::most; ++i) {
    other.exporter += 1;
    ASSERT_TRUE(watching->find_or_make(fd_passing::transport::pidfd, other));
  }
  EXPECT_EQ(watching->find_or_make(fd_passing::transport::pidfd, used).value(), first);
}

TEST_F(fd_connection, number_of_a_thread_is_that_of_no_process) {
  std::promise<pid_t> number;
  const std::jthread thread([&](const std::stop_token& end) {
    number.set_value(::gettid());
    while (!end.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  });
  auto other = what.from;
  other.pid = number.get_future().get();
  EXPECT_EQ(fd_passing::open_process(other).error(), errc::peer_gone);
}

TEST_F(fd_connection, only_scm_connects_after_the_exporter_process_ended) {
  what.from.start_time -= 1;
  EXPECT_EQ(links.find_or_make(fd_passing::transport::pidfd, what.from).error(), errc::peer_gone);
  EXPECT_EQ(links.find_or_make(fd_passing::transport::automatic, what.from).error(), errc::peer_gone);
  const auto link = links.find_or_make(fd_passing::transport::scm, what.from);
  ASSERT_TRUE(link);
  EXPECT_EQ((*link)->fetch(fd_passing::transport::scm, what).error(), errc::peer_gone);
}

}  // namespace
}  // namespace pinfold::testing::fd_connection_test
