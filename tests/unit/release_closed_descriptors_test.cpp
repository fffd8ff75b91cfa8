// SPDX-License-Identifier: BSD-3-Clause
// A program closes descriptors that are not its own (closefrom(3)), or may have none any more (RLIMIT_NOFILE 0): the
// threads of the release protocol go on.
#include "fd_passing/client.hpp"
#include "release/server.hpp"
#include "support/host/processor_time.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/release/listener.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pinfold::release::release_closed_descriptors_test {
namespace {

using namespace std::chrono_literals;

/// Runs `body` in a child process, which may close what it likes.
template <class Body>
int in_child(Body body) {
  testing::child_process child([&](testing::line& parent) {
    parent.hang_up();
    return body();
  });
  return child.finish();
}

}  // namespace

/// Returns 0 if the threads of an exporter, which frees memory before and after `change`, and of a listener rest.
template <class F>
int threads_after(F change) {
  const auto exporter = server::start((static_cast<std::uint64_t>(::getpid()) << 32U) + 9, SIZE_MAX);
  const auto listener = release_listener::create();
  if (!exporter || !listener) return 1;
  const auto frees = [&](std::uint64_t serial) {
    free_call free = [] { return result<void>(); };
    if (!(*exporter)->registry()->add(serial)) return false;
    const auto ticket = (*exporter)->begin(serial, 10, 10s, free);
    return ticket && ticket->wait(60s).value().state == retire_state::freed;
  };
  if (!frees(1) || !change()) return 2;
  if (!frees(2)) return 3;
  return testing::rests() ? 0 : 4;
}

TEST(release_closed_descriptors, the_threads_do_not_spin) {
  EXPECT_EQ(in_child([] { return threads_after([] { return ::closefrom(3), true; }); }), 0);
}

TEST(release_closed_descriptors, the_threads_do_not_spin_with_a_limit_of_0) {
  EXPECT_EQ(in_child([] {
              return threads_after([] {
                const rlimit none{0, 0};
                return ::setrlimit(RLIMIT_NOFILE, &none) == 0;
              });
            }),
            0);
}

TEST(release_closed_descriptors, the_death_of_an_importer_is_noticed) {
  EXPECT_EQ(in_child([] {
              const std::uint64_t number = (static_cast<std::uint64_t>(::getpid()) << 32U) + 10;
              testing::child_process importer([&](testing::line& parent) {
                if (!parent.receive<int>()) return 1;
                const auto to = fd_passing::connect_to({number, 0, 0}, fd_passing::socket_purpose::release);
                release_message opening{.exporter = number, .serial = 1};
                opening = sealed(opening);
                if (!to || ::send(to->number(), &opening, sizeof opening, 0) != sizeof opening) return 1;
                if (!os::readable_within(*to, 60s)) return 1;
                parent.send(0);
                return parent.receive<int>() ? 0 : 1;
              });
              const auto exporter = server::start(number, SIZE_MAX).value();
              if (!exporter->registry()->add(1)) return 1;
              importer.talk().send(0);
              if (!importer.talk().receive<int>()) return 2;
              free_call free = [] { return result<void>(); };
              const auto ticket = exporter->begin(1, 10, 10s, free).value();
              ::closefrom(3);
              importer.kill();
              importer.reap();
              return ticket.wait(60s).value().all_let_go() ? 0 : 3;
            }),
            0);
}

}  // namespace pinfold::release::release_closed_descriptors_test
