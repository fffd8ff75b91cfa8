// SPDX-License-Identifier: BSD-3-Clause
// A program that closes descriptors which are not its own (closefrom(3)). Their numbers then mean files of the program,
// which the library leaves alone.
#include "fd_passing/client.hpp"
#include "support/fixtures/memfd_test.hpp"
#include "support/host/sanitized.hpp"

#include <fcntl.h>
#include <optional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::memfd_closed_descriptors_test {
namespace {

constexpr int first = 3;
constexpr int most = 64;

constexpr const char* races_are_the_point =
    "ThreadSanitizer takes a descriptor that is closed while a thread uses it for a race, which it is: the program's";

/// Returns the result of `body` in a child, which may close any descriptor; -1 when the child is killed.
template <class F>
int in_child(F&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Gives all numbers from `first` to `most` to files of the program.
void take_all_numbers() {
  while (::dup(STDERR_FILENO) < most) {
  }
}

/// Returns how many of these files are open.
int still_open() {
  int count = 0;
  for (int number = first; number < most; ++number) count += ::fcntl(number, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

int listening_descriptor() {
  for (int number = first; number < most; ++number) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens == 1) return number;
  }
  return -1;
}

std::chrono::microseconds processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

// Often: the server's thread may be anywhere in its start.
TEST(memfd_closed_descriptors, exporter_and_buffers_close_no_file_of_the_program) {
  if (thread_sanitized) GTEST_SKIP() << races_are_the_point;
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(in_child([] {
                ::alarm(100);
                ::closefrom(first);
                std::optional exporter(*memfd_exporter::create({.serve = true}));
                std::optional buffer(*exporter->allocate(4096));
                ::closefrom(first);
                take_all_numbers();
                buffer.reset();
                exporter.reset();
                return most - first - still_open();
              }),
              0)
        << "round " << i << "; -1: it hangs";
}

TEST(memfd_closed_descriptors, importer_closes_no_file_of_the_program) {
  if (thread_sanitized) GTEST_SKIP() << races_are_the_point;
  exporter_peer peer{{.serve = true}};
  const auto handle = peer.allocate(4 * kib, 1);
  for (const auto via : {memfd_via::pidfd, memfd_via::scm})
    EXPECT_EQ(in_child([&] {
                std::optional<memfd_importer> importer(std::in_place, memfd_importer_options{.via = via});
                const auto made = importer->open({1}, handle);
                if (!made) return via == memfd_via::pidfd ? 0 : 100;  // not permitted here
                ::closefrom(first);
                take_all_numbers();
                static_cast<void>(importer->close(made->registration));
                importer.reset();
                return most - first - still_open();
              }),
              0);
}

TEST(memfd_closed_descriptors, server_does_not_spin_on_a_listener_that_was_closed) {
  if (thread_sanitized) GTEST_SKIP() << races_are_the_point;
  EXPECT_EQ(
      in_child([] {
        ::closefrom(first);
        std::optional exporter(*memfd_exporter::create({.serve = true}));
        ::close(listening_descriptor());
        static_cast<void>(fd_passing::connect_to({exporter->id(), 0, 0}));  // ends the poll that is still listening
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        bool rests = false;  // in one of several such times: on a busy machine the thread may come to the close late
        for (int tries = 0; tries < 10 && !rests; ++tries) {
          const auto before = processor_time();
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
          rests = processor_time() - before < std::chrono::milliseconds(25);
        }
        exporter.reset();
        return rests ? 0 : 1;
      }),
      0);
}

}  // namespace
}  // namespace pinfold::testing::memfd_closed_descriptors_test
