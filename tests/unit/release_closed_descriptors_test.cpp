// SPDX-License-Identifier: BSD-3-Clause
// A program closes descriptors that are not its own (closefrom(3)): the threads of the release protocol go on.
#include "fd_passing/client.hpp"
#include "release/server.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/release/listener.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace pinfold::release::release_closed_descriptors_test {
namespace {

using namespace std::chrono_literals;

/// Returns the processor time that this process takes within 500 ms.
std::chrono::nanoseconds time_taken() {
  const auto before = std::clock();
  std::this_thread::sleep_for(500ms);
  return std::chrono::nanoseconds((std::clock() - before) * (1000000000 / CLOCKS_PER_SEC));
}

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

TEST(release_closed_descriptors, the_threads_do_not_spin) {
  EXPECT_EQ(in_child([] {
              const auto exporter = server::start((static_cast<std::uint64_t>(::getpid()) << 32U) + 9, SIZE_MAX);
              const auto listener = release_listener::create();
              if (!exporter || !listener) return 1;
              ::closefrom(3);
              return time_taken() < 250ms ? 0 : 2;
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
