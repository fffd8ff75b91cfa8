// SPDX-License-Identifier: BSD-3-Clause
// A program that closed its standard output goes on printing to number 1: no file of the library has that number.
#include "os/file.hpp"
#include "os/message.hpp"
#include "os/page_bytes.hpp"
#include "support/fixtures/node_account.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/dma_buf.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/node_budget.hpp>
#include <pinfold/release/listener.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <optional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pinfold::testing::standard_descriptors_test {
namespace {

/// Returns how many of the numbers 0 to 2 are open.
int standard_open() {
  int count = 0;
  for (int number = 0; number <= STDERR_FILENO; ++number) count += ::fcntl(number, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

/// Runs `body` in a child without standard input, output and errors; it returns 0 for success, as the child's status.
template <class Body>
int without_standard(Body body) {
  child_process child([&](line&) {
    for (int number = 0; number <= STDERR_FILENO; ++number) ::close(number);
    return body();
  });
  return child.reap();
}

TEST(standard_descriptors, file_of_the_library_has_another_number) {
  EXPECT_EQ(without_standard([] {
              const os::file opened(::open("/dev/null", O_RDWR | O_CLOEXEC));
              if (!opened || !opened.still_there()) return 1;
              if ((::fcntl(opened.number(), F_GETFD) & FD_CLOEXEC) == 0) return 2;
              return opened.number() > STDERR_FILENO && standard_open() == 0 ? 0 : 3;
            }),
            0);
}

TEST(standard_descriptors, file_without_another_number_is_none) {
  EXPECT_EQ(without_standard([] {
              const int opened = ::open("/dev/null", O_RDWR | O_CLOEXEC);
              const lowered_limit none(RLIMIT_NOFILE, 3);
              const os::file made(opened);
              const int native = errno;
              return !made && native == EMFILE && standard_open() == 0 ? 0 : 1;
            }),
            0);
}

TEST(standard_descriptors, exported_memory_is_not_printed_to) {
  EXPECT_EQ(without_standard([] {
              auto exporter = memfd_exporter::create({.serve = true});
              if (!exporter) return 1;
              auto buffer = exporter->allocate(os::page_bytes());
              if (!buffer || buffer->handle().descriptor <= STDERR_FILENO) return 2;
              return standard_open() == 0 ? 0 : 3;
            }),
            0);
}

TEST(standard_descriptors, account_of_a_node_budget_is_not_printed_to) {
  const node_account account;
  EXPECT_EQ(without_standard([&] {
              const auto budget = account.open(std::size_t{1} << 20U);
              return standard_open() == 0 ? 0 : 1;
            }),
            0);
}

TEST(standard_descriptors, threads_and_sockets_of_the_release_protocol_are_not_printed_to) {
  EXPECT_EQ(without_standard([] {
              const auto listener = release_listener::create();
              const auto exporter = memfd_exporter::create({.serve = true, .release = true});
              return listener && exporter && standard_open() == 0 ? 0 : 1;
            }),
            0);
}

TEST(standard_descriptors, received_descriptor_has_another_number) {
  EXPECT_EQ(without_standard([] {
              std::array<int, 2> ends{};
              if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return 1;
              const std::array<os::file, 2> pair{os::file(ends[0]), os::file(ends[1])};
              const std::array<int, 1> sent{pair[0].number()};
              const std::byte word{};
              if (os::send_message(pair[0].number(), {&word, 1}, sent, 0) != 0) return 2;
              std::byte body{};
              std::array<os::file, 1> passed;
              const auto got = os::receive_message(pair[1].number(), {&body, 1}, passed, 0);
              return got.passed == 1 && !got.cut_off && passed[0].still_there() && standard_open() == 0 ? 0 : 3;
            }),
            0);
}

TEST(standard_descriptors, process_of_a_peer_without_another_number_is_an_error) {
  EXPECT_EQ(without_standard([] {
              std::array<int, 2> ends{};
              if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return 1;
              const std::array<os::file, 2> pair{os::file(ends[0]), os::file(ends[1])};
              const lowered_limit none(RLIMIT_NOFILE, 1);
              const auto process = os::other_process(pair[0]);
              return !process && process.error() != errc::peer_gone && standard_open() == 0 ? 0 : 2;
            }),
            0);
}

TEST(standard_descriptors, kept_dma_buf_has_another_number) {
  EXPECT_EQ(without_standard([] {
              shared_dma_buf exported([](const range& memory) -> result<std::optional<exported_dma_buf>> {
                return exported_dma_buf{::open("/dev/null", O_RDONLY | O_CLOEXEC), memory, 0};
              });
              const range memory{0x1000, 0x3000};
              const auto request = exported.begin(memory);
              const auto position = exported.position({0x1000, 0x2000});
              if (!request || !position || !*position) return 1;
              const bool apart = (*position)->descriptor > STDERR_FILENO && standard_open() == 0;
              ::close((*position)->descriptor);
              return apart && exported.counts().open == 1 ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace pinfold::testing::standard_descriptors_test
