// SPDX-License-Identifier: BSD-3-Clause
// A limit on the size of files is an error of the call, and no signal.
#include "os/size_limit.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pinfold::testing::size_limit_test {
namespace {

volatile std::sig_atomic_t signals = 0;

int grow(int file) {
  return os::within_size_limit([&] { return ::ftruncate(file, 8192); });
}

TEST(size_limit, is_an_error_without_a_signal) {
  run_in_child([] {
    const int file = ::memfd_create("pinfold-test", 0);
    const lowered_limit low(RLIMIT_FSIZE, 4096);
    EXPECT_EQ(grow(file), -1);
    EXPECT_EQ(errno, EFBIG);
    ::signal(SIGXFSZ, [](int) { signals = signals + 1; });
    EXPECT_EQ(grow(file), -1);
    EXPECT_EQ(signals, 0);
    EXPECT_EQ(::ftruncate(file, 8192), -1);
    EXPECT_EQ(signals, 1) << "the mask is that of before";
  });
}

TEST(size_limit, programs_own_signal_stays_pending) {
  run_in_child([] {
    const int file = ::memfd_create("pinfold-test", 0);
    ::signal(SIGXFSZ, [](int) { signals = signals + 1; });
    sigset_t only{};
    sigset_t before{};
    ::sigemptyset(&only);
    ::sigaddset(&only, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &only, &before);
    ::raise(SIGXFSZ);
    EXPECT_EQ(grow(file), 0);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    EXPECT_EQ(signals, 1);
  });
}

TEST(size_limit, standard_error_that_nobody_reads_is_an_error_without_a_signal) {
  run_in_child([] {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::close(ends[0]);
    const auto print = [&] { return os::to_the_program([&] { return ::write(ends[1], "x", 1); }); };
    EXPECT_EQ(print(), -1);
    EXPECT_EQ(errno, EPIPE);
    ::signal(SIGPIPE, [](int) { signals = signals + 1; });
    EXPECT_EQ(print(), -1);
    EXPECT_EQ(signals, 0);
    EXPECT_EQ(::write(ends[1], "x", 1), -1);
    EXPECT_EQ(signals, 1) << "the mask is that of before";
  });
}

}  // namespace
}  // namespace pinfold::testing::size_limit_test
