// SPDX-License-Identifier: BSD-3-Clause
// The exporter's thread with peers that misbehave, and through the life of its process.
#include "fd_passing/client.hpp"
#include "fd_passing/server.hpp"
#include "support/answer_times.hpp"
#include "support/fixtures/memfd_test.hpp"
#include "support/full_backlog.hpp"
#include "support/host/once_within.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace pinfold::testing::fd_server_test {
namespace {

using std::chrono::steady_clock;

struct fd_server : ::testing::Test {
  exporter_peer peer{{.serve = true}};
  memfd_handle handle = peer.allocate(4 * kib, 1);
  memfd_importer reader{{.via = memfd_via::scm}};

  [[nodiscard]] os::file connection() const {
    return fd_passing::connect_to({handle.exporter, handle.start_time, handle.pid}).value();
  }

  static bool say(const os::file& socket, const void* what, std::size_t bytes) {
    return ::send(socket.number(), what, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
  }

  /// Expects that only the first open waits for the stopped exporter, and that opens succeed once it goes on.
  void expect_one_wait_while_stopped() {
    EXPECT_EQ(reader.open(any_peer, handle).error(), errc::timed_out);
    EXPECT_TRUE(once_within(fd_passing::answer_timeout / 2, [&] {
      for (int i = 0; i < 5; ++i) EXPECT_EQ(reader.open(any_peer, handle).error(), errc::timed_out);
    }));
    set_answer_times(ample_answer_time);
    peer.process().go_on();
    bool answers = false;
    for (int i = 0; i < 6000 && !answers; ++i, std::this_thread::sleep_for(std::chrono::milliseconds{10}))
      answers = reader.open(any_peer, handle).has_value();
    EXPECT_TRUE(answers);
  }

  /// Returns whether the server hangs up within a minute.
  static bool hangs_up(const os::file& socket) {
    char byte = 0;
    return os::readable_within(socket, std::chrono::seconds{60}) &&
           ::recv(socket.number(), &byte, sizeof byte, MSG_DONTWAIT) <= 0;
  }
};

TEST_F(fd_server, malformed_request_closes_the_connection_and_others_are_served) {
  const fd_passing::request right{fd_passing::wire_magic, handle.serial};
  const fd_passing::request wrong{fd_passing::wire_magic + 1, handle.serial};
  const std::string endless(4096, 'x');
  const std::vector<std::pair<const void*, std::size_t>> garbage{
      {&wrong, sizeof wrong}, {&right, sizeof right - 1}, {&right, 1}, {&right, 0}, {endless.data(), endless.size()}};
  for (const auto& [bytes, count] : garbage) {
    const os::file socket = connection();
    ASSERT_TRUE(say(socket, bytes, count));
    EXPECT_TRUE(hangs_up(socket)) << count << " bytes";
    expect_round_trip(reader, handle, 1);
  }
}

TEST_F(fd_server, silent_peers_do_not_delay_other_peers) {
  std::vector<os::file> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(connection());
  const auto ask = [&] {
    for (int i = 0; i < 20; ++i) expect_round_trip(reader, handle, 1);
  };
  EXPECT_TRUE(once_within(fd_passing::answer_timeout, ask)) << "a wait for one of them takes as long";
}

TEST_F(fd_server, peer_that_never_reads_its_answers_is_disconnected) {
  const os::file socket = connection();
  const fd_passing::request question{fd_passing::wire_magic, handle.serial};
  int asked = 0;
  while (asked < 100'000 && say(socket, &question, sizeof question)) ++asked;
  EXPECT_LT(asked, 100'000);
  expect_round_trip(reader, handle, 1);
}

TEST_F(fd_server, flood_of_connections_closes_the_longest_silent_ones) {
  expect_round_trip(reader, handle, 1);  // leaves a connection that will be among those cut off
  std::vector<os::file> flood;
  for (std::size_t i = 0; i < 2 * fd_passing::server::most_clients; ++i) flood.push_back(connection());
  for (int i = 0; i < 5; ++i) expect_round_trip(reader, handle, 1);
  EXPECT_TRUE(hangs_up(flood.front()));
  EXPECT_FALSE(os::readable_within(flood.back(), std::chrono::milliseconds{0})) << "the newest one was cut off";
}

TEST_F(fd_server, unknown_serial_is_stale_and_the_connection_stays_open) {
  const os::file socket = connection();
  auto unknown = handle;
  unknown.serial += 1000;
  EXPECT_EQ(fd_passing::ask(socket, os::file(), unknown.serial).error(), errc::stale_handle);
  EXPECT_TRUE(fd_passing::ask(socket, os::file(), handle.serial));
}

TEST_F(fd_server, exporter_killed_with_a_pending_request_is_peer_gone) {
  const auto process = fd_passing::open_process(memfd::behind(handle).from);
  ASSERT_TRUE(process);
  const os::file socket = connection();
  peer.process().stop();
  const fd_passing::request question{fd_passing::wire_magic, handle.serial};
  ASSERT_TRUE(say(socket, &question, sizeof question));
  peer.process().kill();
  EXPECT_TRUE(hangs_up(socket));
  EXPECT_EQ(reader.open(any_peer, handle).error(), errc::peer_gone);
}

TEST_F(fd_server, R46_wait_of_an_importer_ends_when_the_exporter_is_killed) {
  EXPECT_TRUE(once_within(fd_passing::answer_timeout / 2, [&] {
    exporter_peer killed({.serve = true});
    const auto own = killed.allocate(4 * kib, 1);
    expect_round_trip(reader, own, 1);
    killed.process().stop();
    std::optional<error> seen;
    {
      const std::jthread waiting([&] { seen = reader.open(any_peer, own).error(); });
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      killed.process().kill();
    }
    ASSERT_TRUE(seen);
    EXPECT_EQ(*seen, errc::peer_gone) << describe(*seen);
  }));
}

TEST_F(fd_server, stopped_exporter_costs_the_time_for_an_answer_once) {
  const usual_answer_times usual;
  peer.process().stop();
  expect_one_wait_while_stopped();
}

TEST_F(fd_server, stopped_exporter_without_room_for_connections_costs_the_time_for_one_once) {
  const usual_answer_times usual;
  peer.process().stop();
  ASSERT_TRUE(fill_backlog(memfd::behind(handle).from, fd_passing::socket_purpose::descriptors));
  expect_one_wait_while_stopped();
}

TEST_F(fd_server, fork_child_does_not_keep_a_dead_exporter_alive) {
  // The child has the listening socket and every memfd, but no serving thread.
  child_process exporting([](line& parent) {
    auto exporter = memfd_exporter::create({.serve = true}).value();
    const auto buffer = exporter.allocate(4 * kib).value();
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      ::sleep(250);
      std::_Exit(0);
    }
    parent.send(buffer.handle());
    parent.send(grandchild);
    return parent.receive<int>() ? 1 : 0;
  });
  const auto orphaned = exporting.talk().receive<memfd_handle>();
  const auto grandchild = exporting.talk().receive<pid_t>();
  ASSERT_TRUE(orphaned && grandchild);
  ASSERT_TRUE(reader.open(any_peer, *orphaned));
  exporting.kill();
  const auto refusals = [&] {
    EXPECT_EQ(reader.open(any_peer, *orphaned).error(), errc::peer_gone);
    EXPECT_EQ(memfd_importer({.via = memfd_via::scm}).open(any_peer, *orphaned).error(), errc::peer_gone);
  };
  EXPECT_TRUE(once_within(fd_passing::answer_timeout / 2, refusals));
  exporting.reap();
  EXPECT_TRUE(once_within(fd_passing::answer_timeout / 2, refusals));
  ::kill(*grandchild, SIGKILL);
}

/// Opens memory of an exporter that has ended in its process, a forked child of which lives on.
void open_of_an_ended_exporter(steady_clock::duration& took) {
  child_process exporting([](line& parent) {
    std::optional<memfd_exporter> exporter = memfd_exporter::create({.serve = true}).value();
    const auto buffer = exporter->allocate(4 * kib).value();
    parent.send(buffer.handle());
    if (!parent.receive<int>()) return 1;
    const child_process inheriting([](line&) { return static_cast<int>(::sleep(250)); });
    exporter.reset();
    parent.send(0);
    return parent.receive<int>() ? 1 : 0;
  });
  const auto handle = exporting.talk().receive<memfd_handle>();
  ASSERT_TRUE(handle);
  memfd_importer reader({.via = memfd_via::scm});
  ASSERT_TRUE(reader.open(any_peer, *handle));
  ASSERT_TRUE(exporting.talk().send(0) && exporting.talk().receive<int>());
  const auto before = steady_clock::now();
  EXPECT_EQ(reader.open(any_peer, *handle).error(), errc::unsupported);
  took = steady_clock::now() - before;
}

TEST(memfd_server_life, fork_child_does_not_keep_a_connection_of_an_exporter_that_ended) {
  auto least = steady_clock::duration::max();
  for (int tries = 0; tries < 10 && least > fd_passing::answer_timeout / 2 && !HasFailure(); ++tries) {
    steady_clock::duration took{};
    ASSERT_NO_FATAL_FAILURE(open_of_an_ended_exporter(took));
    least = std::min(least, took);
  }
  EXPECT_LT(least, fd_passing::answer_timeout / 2);
}

TEST(memfd_server_life, fork_child_can_destroy_its_copy_and_the_parent_keeps_serving) {
  child_process exporting([](line& parent) {
    std::optional<memfd_exporter> exporter = memfd_exporter::create({.serve = true}).value();
    std::optional<memfd_buffer> buffer = exporter->allocate(4 * kib).value();
    write_pattern(buffer->data(), buffer->size(), 1);
    child_process inheriting([&](line&) {
      const bool refused = !exporter->allocate(4 * kib);
      buffer.reset();
      exporter.reset();
      return refused ? 0 : 1;
    });
    const int status = inheriting.reap();
    parent.send(buffer->handle());
    parent.receive<int>();
    return status;
  });
  const auto handle = exporting.talk().receive<memfd_handle>();
  ASSERT_TRUE(handle);
  memfd_importer reader({.via = memfd_via::scm});
  expect_round_trip(reader, *handle, 1);
  EXPECT_EQ(exporting.finish(), 0);
}

TEST(memfd_server_life, server_stops_at_once_with_peers_connected) {
  EXPECT_TRUE(once_within(fd_passing::answer_timeout, [] {
    auto exporter = memfd_exporter::create({.serve = true}).value();
    std::vector<os::file> peers;
    for (int i = 0; i < 20; ++i) peers.push_back(fd_passing::connect_to({exporter.id(), 0, 0}).value());
    const auto ending = std::move(exporter);
  }));
}

/// Returns whether a question that came during a lack of descriptors was answered before the importer gave up.
bool is_answered_late() {
  auto exporter = memfd_exporter::create({.serve = true}).value();
  const auto buffer = exporter.allocate(4 * kib).value();
  write_pattern(buffer.data(), buffer.size(), 1);
  child_process asking([handle = buffer.handle()](line& parent) {
    if (!parent.receive<int>()) return 1;
    memfd_importer reader({.via = memfd_via::scm});
    const auto made = reader.open(any_peer, handle);
    return made && holds_pattern(made->data, made->bytes, 1) ? 0 : 2;
  });
  {
    const lowered_limit none(RLIMIT_NOFILE, lowest_free_descriptor());
    EXPECT_TRUE(asking.talk().send(0));
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  }
  return asking.reap() == 0;
}

TEST(memfd_server_life, server_survives_a_lack_of_descriptors) {
  bool answered = false;
  for (int tries = 0; tries < 5 && !answered; ++tries) answered = is_answered_late();  // a busy machine may be too late
  EXPECT_TRUE(answered) << "the question that came meanwhile is answered late, but it is";
}

}  // namespace
}  // namespace pinfold::testing::fd_server_test
