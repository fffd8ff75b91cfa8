// SPDX-License-Identifier: BSD-3-Clause
// The process at the other end of a connection, after its number went to another.
#include "fd_passing/wire.hpp"
#include "release/endpoint.hpp"
#include "support/host/refused_call.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace pinfold::release::release_endpoint_test {
namespace {

using testing::child_process;
using testing::line;

/// A child with that number, which needs privileges; ends with this object.
class namesake {
 public:
  explicit namesake(pid_t number) {
    clone_args how{};
    how.exit_signal = SIGCHLD;
    how.set_tid = reinterpret_cast<std::uint64_t>(&number);
    how.set_tid_size = 1;
    pid_ = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  namesake(const namesake&) = delete;
  namesake& operator=(const namesake&) = delete;
  ~namesake() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] bool runs() const noexcept { return pid_ > 0; }

 private:
  pid_t pid_ = -1;
};

/// Connects a child that ends at once, gives its number to another process, and returns this end.
void expect_end_is_seen() {
  const auto at = fd_passing::address_of(0x5eed'0000'0000'0001U + (static_cast<std::uint64_t>(::getpid()) << 8U),
                                         fd_passing::socket_purpose::release);
  const auto* const name = reinterpret_cast<const sockaddr*>(&at.name);
  const os::file listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.number(), name, at.bytes), 0);
  ASSERT_EQ(::listen(listener.number(), 1), 0);
  child_process connecting([&](line&) {
    const int one = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    return ::connect(one, name, at.bytes);
  });
  const pid_t number = connecting.pid();
  ASSERT_EQ(connecting.reap(), 0);
  const namesake other(number);
  if (!other.runs()) GTEST_SKIP() << "this process may not choose numbers of processes";
  const auto seen = endpoint::of(os::file(::accept(listener.number(), nullptr, nullptr)));
  EXPECT_EQ(seen.pid, number);
  EXPECT_TRUE(seen.process_ended() || seen.no_process == ESRCH || seen.no_process == ENOTCONN);
}

}  // namespace

TEST(release_endpoint, a_process_that_got_the_number_of_an_importer_is_not_taken_for_it) {
  testing::run_in_child([] { expect_end_is_seen(); });
}

TEST(release_endpoint, nor_where_the_kernel_does_not_tell_the_process) {
  testing::run_in_child([] {
    ASSERT_TRUE(testing::refuse_socket_option(testing::option_peer_pidfd));
    expect_end_is_seen();
  });
}

}  // namespace pinfold::release::release_endpoint_test
