// SPDX-License-Identifier: BSD-3-Clause
// A forked child has no part in the release protocol, and can destroy what it inherited.
#include "fd_passing/wire.hpp"
#include "release/endpoint.hpp"
#include "release/server.hpp"
#include "support/host/once_within.hpp"
#include "support/processes/importer_peer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <future>
#include <optional>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::release::release_fork_test {
namespace {

using namespace std::chrono_literals;

/// Runs `body` in a forked child. Returns its answer, or -1 where it did not end within a minute.
template <class Body>
int in_forked_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST(release_fork, a_child_can_destroy_a_ticket_on_which_the_parent_waits) {
  auto in = server::start((static_cast<std::uint64_t>(::getpid()) << 32U) + 1, SIZE_MAX).value();
  const auto registry = in->registry();
  ASSERT_TRUE(registry->add(1));
  ASSERT_TRUE(registry->lend(1, 5));
  free_call free = [] { return result<void>(); };
  std::optional<retirement> ticket = in->begin(1, 10, 10s, free).value();
  std::thread waiting([&] { EXPECT_TRUE(ticket->wait(120s).value().all_let_go()); });
  std::this_thread::sleep_for(50ms);  // most likely it waits by now; if not, the test shows less
  EXPECT_EQ(in_forked_child([&] {
              if (ticket->report().has_value() || ticket->report().error() != errc::unsupported) return 1;
              if (ticket->wait(1ms).has_value()) return 2;
              if (in->statistics().retirements != 0) return 3;
              ticket.reset();
              in.reset();
              return 0;
            }),
            0);
  static_cast<void>(registry->died(5));
  waiting.join();
}

TEST(release_fork, a_child_has_no_part_in_a_listener) {
  std::optional<release_listener> listener = release_listener::create().value();
  testing::release_cache cache(releasing_importer<memfd_importer>(memfd_importer(), *listener));
  std::optional attached = listener->attach(cache).value();
  EXPECT_EQ(in_forked_child([&] {
              if (listener->statistics().mappings != 0) return 1;
              if (listener->attach(cache).has_value()) return 2;
              attached.reset();
              listener.reset();
              return 0;
            }),
            0);
}

TEST(release_fork, a_child_does_not_keep_a_dead_exporter_alive) {
  for (const bool killed : {false, true}) {
    testing::child_process exporting([](testing::line& parent) {
      std::optional exporter = memfd_exporter::create({.release = true}).value();
      const auto buffer = exporter->allocate(4096).value();
      testing::child_process inheriting([](testing::line&) {
        ::prctl(PR_SET_PDEATHSIG, 0);
        ::sleep(250);
        return 0;
      });
      parent.send(buffer.handle());
      parent.send(inheriting.pid());
      if (!parent.receive<int>()) return 1;
      exporter.reset();
      parent.send(0);
      return parent.receive<int>() ? 1 : 0;
    });
    const auto handle = exporting.talk().receive<memfd_handle>();
    const auto inheriting = exporting.talk().receive<pid_t>();
    ASSERT_TRUE(handle && inheriting);
    if (killed) {
      exporting.kill();
      exporting.reap();
    } else {
      exporting.talk().send(0);
      ASSERT_TRUE(exporting.talk().receive<int>());
    }
    auto listener = release_listener::create().value();
    EXPECT_TRUE(testing::once_within(4s, [&] {
      const auto opened = listener.begin_open(
          {{handle->exporter, handle->serial}, {1}, handle->allocation(), handle->start_time, handle->pid});
      EXPECT_EQ(opened.error(), killed ? errc::peer_gone : errc::unsupported);
    }));
    ::kill(*inheriting, SIGKILL);
  }
}

TEST(release_fork, a_child_does_not_keep_the_connection_of_a_listener_that_ended) {
  const std::uint64_t number = (static_cast<std::uint64_t>(::getpid()) << 32U) + 2;
  const auto exporter = fd_passing::listen_at(number, fd_passing::socket_purpose::release).value();
  std::optional listener = release_listener::create().value();
  auto opening = std::async(std::launch::async, [&] {
    return listener->begin_open({{number, 1}, {1}, range{4096, 8192}, 0, ::getpid()}).has_value();
  });
  ASSERT_TRUE(os::readable_within(exporter, 60s));
  const auto connection = endpoint::of(os::file(::accept4(exporter.number(), nullptr, nullptr, SOCK_CLOEXEC)));
  release_message said;
  ASSERT_TRUE(os::readable_within(connection.socket, 60s));
  ASSERT_EQ(connection.receive(said), endpoint::received::message);
  said.kind = release_kind::admitted;
  ASSERT_EQ(connection.send(sealed(said)), endpoint::sent::done);
  ASSERT_TRUE(opening.get());
  const testing::child_process inheriting([](testing::line&) { return static_cast<int>(::sleep(250)); });
  listener.reset();
  auto got = endpoint::received::message;
  while (got == endpoint::received::message && os::readable_within(connection.socket, 60s))
    got = connection.receive(said);
  EXPECT_EQ(got, endpoint::received::broken);
}

}  // namespace pinfold::release::release_fork_test
