// SPDX-License-Identifier: BSD-3-Clause
// What the exporter's thread makes of the end of a connection.
#include "fd_passing/client.hpp"
#include "release/server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <unistd.h>

namespace pinfold::release::release_endings_test {
namespace {

using namespace std::chrono_literals;

/// A server, and a hand-made importer of this process.
class release_endings : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::uint64_t serial : {1U, 2U, 3U}) ASSERT_TRUE(in->registry()->add(serial));
  }

  release_message made(std::uint64_t serial, release_kind kind, release_state state = release_state::silent) const {
    release_message message{.exporter = exporter, .serial = serial};
    message.kind = kind;
    message.state = state;
    return sealed(message);
  }
  endpoint connected() const {
    return endpoint::of(fd_passing::connect_to({exporter, 0, 0}, fd_passing::socket_purpose::release).value());
  }
  /// Opens memory, as an importer does.
  void open(const endpoint& from, std::uint64_t serial) const {
    ASSERT_EQ(from.send(made(serial, release_kind::opening)), endpoint::sent::done);
    ASSERT_TRUE(os::readable_within(from.socket, 60s));
    release_message answer;
    ASSERT_EQ(from.receive(answer), endpoint::received::message);
    ASSERT_EQ(answer.kind, release_kind::admitted);
  }
  retirement begin(std::uint64_t serial, free_call free = [] { return result<void>(); }) {
    return in->begin(serial, 10, 10s, free).value();
  }
  /// Runs `body` while the server's thread frees memory 2.
  template <class Body>
  void while_the_thread_is_busy(Body body) {
    std::promise<void> entered;
    std::promise<void> leave;
    const auto freed = begin(2, [&]() -> result<void> {
      entered.set_value();
      leave.get_future().wait();
      return {};
    });
    entered.get_future().wait();
    body();
    leave.set_value();
    EXPECT_TRUE(freed.wait(60s).value().all_let_go());
  }

  const std::uint64_t exporter = (static_cast<std::uint64_t>(::getpid()) << 32U) + 7;
  server_owner in = server::start(exporter, SIZE_MAX).value();
};

}  // namespace

TEST_F(release_endings, an_answer_before_the_end_counts_though_a_request_was_unread) {
  std::optional importer = connected();
  open(*importer, 1);
  const auto ticket = begin(1);
  ASSERT_TRUE(os::readable_within(importer->socket, 60s));  // the request
  while_the_thread_is_busy([&] {
    EXPECT_EQ(importer->send(made(1, release_kind::answer, release_state::gone)), endpoint::sent::done);
    importer.reset();
  });
  const auto last = ticket.wait(60s).value();
  EXPECT_TRUE(last.all_let_go());
  EXPECT_EQ(last.let_go, 1U);
}

TEST_F(release_endings, an_answer_before_the_end_counts_though_an_admission_cannot_be_sent) {
  std::optional importer = connected();
  open(*importer, 1);
  while_the_thread_is_busy([&] {
    EXPECT_EQ(importer->send(made(3, release_kind::opening)), endpoint::sent::done);
    EXPECT_EQ(importer->send(made(1, release_kind::answer, release_state::gone)), endpoint::sent::done);
    EXPECT_EQ(importer->send(made(3, release_kind::answer, release_state::gone)), endpoint::sent::done);
    importer.reset();
  });
  for (const std::uint64_t serial : {1U, 3U}) EXPECT_TRUE(begin(serial).wait(60s).value().all_let_go());
}

}  // namespace pinfold::release::release_endings_test
