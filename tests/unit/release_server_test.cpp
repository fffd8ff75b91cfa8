// SPDX-License-Identifier: BSD-3-Clause
// The exporter's server, with an importer that is only a socket (R66).
#include "fd_passing/client.hpp"
#include "fd_passing/wire.hpp"
#include "release/server.hpp"
#include "release/steps.hpp"
#include "support/host/process_limits.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing::release_server_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t lent = 1;
constexpr std::uint64_t idle = 2;

class release_server : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::uint64_t serial : {lent, idle}) ASSERT_TRUE(server->registry()->add(serial));
    auto socket = fd_passing::connect_to({number, 0, 0}, fd_passing::socket_purpose::release);
    ASSERT_TRUE(socket);
    importer = release::endpoint::of(std::move(*socket));
    say(release_kind::opening);
    wait_for_message();
    ASSERT_EQ(importer->receive(last), release::endpoint::received::message);
    ASSERT_EQ(last.kind, release_kind::admitted);
  }

  void say(release_kind kind, release_state state = release_state::silent) {
    release_message made{.exporter = number, .serial = lent, .kind = kind, .state = state};
    ASSERT_EQ(importer->send(sealed(made)), release::endpoint::sent::done);
  }
  void wait_for_message() {
    pollfd one{.fd = importer->socket.number(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&one, 1, 30'000), 1);
  }

  retirement begin(std::uint64_t serial, release::free_call free) { return server->begin(serial, 1, 5s, free).value(); }

  const std::uint64_t number = 0x5eed'0000'0000'0000U + static_cast<std::uint64_t>(::getpid());
  release::server_owner server = release::server::start(number, SIZE_MAX).value();
  std::optional<release::endpoint> importer;
  release_message last;
};

}  // namespace

TEST_F(release_server, R66_what_an_importer_said_counts_although_it_closed_without_reading) {
  const auto ticket = begin(lent, [] { return result<void>(); });
  wait_for_message();  // the request, which stays unread
  static std::latch accepted(1);
  static std::latch closed(1);
  release::at_step.store([](release::step one) noexcept {
    if (one != release::step::exporter_accepted) return;
    accepted.count_down();
    closed.wait();
  });
  const auto other = fd_passing::connect_to({number, 0, 0}, fd_passing::socket_purpose::release);
  accepted.wait();  // the server reads nothing before the end of the connection
  say(release_kind::answer, release_state::gone);
  importer.reset();
  closed.count_down();
  const auto report = ticket.wait(60s).value();
  EXPECT_TRUE(report.all_let_go());
  EXPECT_EQ(report.let_go, 1U);
  release::at_step.store(nullptr);
}

namespace {

// The server stops when it has as many connections of one process as it may, and then in the next `opening`.
struct stops {
  std::atomic<int> accepted{1};  // the importer's
  std::latch full{1};
  std::latch queued{1};
  std::latch opening{1};
  std::latch over{1};
};
stops* stopping = nullptr;

}  // namespace

TEST_F(release_server, R66_connections_that_are_turned_away_do_not_delay_an_importer) {
  stops at;
  stopping = &at;
  release::at_step.store([](release::step one) noexcept {
    if (one == release::step::exporter_accepted &&
        stopping->accepted.fetch_add(1, std::memory_order_relaxed) + 1 == release::server::most_of_a_process) {
      stopping->full.count_down();
      stopping->queued.wait();
    }
    if (one == release::step::exporter_opening && stopping->queued.try_wait()) {
      stopping->opening.count_down();
      stopping->over.wait();
    }
  });
  const auto connect = [&] { return fd_passing::connect_to({number, 0, 0}, fd_passing::socket_purpose::release); };
  std::vector<result<os::file>> kept;
  for (auto i = release::server::most_of_a_process; i > 1; --i) kept.push_back(connect());
  at.full.wait();
  constexpr int most_waiting = 17;  // more than the server accepts in a round
  for (int i = 0; i < most_waiting; ++i) kept.push_back(connect());
  say(release_kind::opening);
  at.queued.count_down();
  at.opening.wait();
  ASSERT_TRUE(kept.back());
  EXPECT_FALSE(os::readable_within(*kept.back(), 0ms)) << "the server turned all away before it read";
  at.over.count_down();
  EXPECT_TRUE(os::readable_within(*kept.back(), 60s));
  server.reset();
  release::at_step.store(nullptr);
}

TEST_F(release_server, R66_a_connection_without_a_descriptor_for_it_delays_no_importer) {
  std::optional<lowered_limit> few(std::in_place, RLIMIT_NOFILE, lowest_free_descriptor() + 1);
  const auto at = fd_passing::address_of(number, fd_passing::socket_purpose::release);
  os::file other(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));  // has the last descriptor
  ASSERT_EQ(::connect(other.number(), reinterpret_cast<const sockaddr*>(&at.name), at.bytes), 0);
  bool prompt = false;
  for (int tries = 0; tries < 10 && !prompt; ++tries) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) {
      say(release_kind::opening);
      wait_for_message();
      ASSERT_EQ(importer->receive(last), release::endpoint::received::message);
    }
    prompt = std::chrono::steady_clock::now() - start < 250ms;
  }
  EXPECT_TRUE(prompt) << "the server rests between any two of an importer's messages";
  few.reset();
  importer = release::endpoint::of(std::move(other));
  say(release_kind::opening);
  EXPECT_TRUE(os::readable_within(importer->socket, 60s)) << "the server accepts no more";
}

TEST_F(release_server, R66_an_announcement_without_a_limit_waits_for_the_answer) {
  const std::uint64_t serials[] = {lent};
  auto said =
      std::async(std::launch::async, [&] { return server->announce(serials, std::chrono::milliseconds::max()); });
  wait_for_message();
  EXPECT_EQ(said.wait_for(100ms), std::future_status::timeout);
  say(release_kind::answer, release_state::gone);
  EXPECT_EQ(said.get().value(), 0U);
}

TEST_F(release_server, R66_a_slow_free_delays_no_importer) {
  std::latch in_free(1);
  std::latch admitted(1);
  const auto ticket = begin(idle, [&] {
    in_free.count_down();
    admitted.wait();
    return result<void>();
  });
  in_free.wait();
  say(release_kind::opening);
  wait_for_message();
  EXPECT_EQ(importer.value().receive(last), release::endpoint::received::message);
  EXPECT_EQ(last.kind, release_kind::admitted);
  admitted.count_down();
  EXPECT_TRUE(ticket.wait(60s).value().all_let_go());
}

TEST_F(release_server, R66_an_importer_that_closes_without_a_word_is_lost) {
  importer.reset();
  const auto ticket = begin(lent, [] { return result<void>(); });
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  auto report = ticket.wait(200ms).value();
  while (report.holders.size() == 1 && !report.holders[0].lost && std::chrono::steady_clock::now() < deadline)
    report = ticket.wait(1ms).value();
  ASSERT_EQ(report.holders.size(), 1U);
  EXPECT_TRUE(report.holders[0].lost);
  EXPECT_EQ(report.holders[0].pid, ::getpid());
}

}  // namespace pinfold::testing::release_server_test
