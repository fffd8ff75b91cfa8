// SPDX-License-Identifier: BSD-3-Clause
// `pinfold monitord`: an ordinary program uses the monitor bpf through it.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/privileges.hpp"
#include "support/processes/tool_run.hpp"

#include <csignal>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::cli_monitord_test {
namespace {

using namespace std::chrono_literals;

class monitord : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(output_), 0);
    server_ = ::fork();
    if (server_ == 0) {
      ::dup2(output_[1], STDOUT_FILENO);
      ::dup2(output_[1], STDERR_FILENO);
      const auto program = tool();
      rlimit few{};
      ::getrlimit(RLIMIT_NOFILE, &few);
      few.rlim_cur = 256;
      ::setrlimit(RLIMIT_NOFILE, &few);
      ::execl(program.c_str(), program.c_str(), "monitord", "--socket", socket_.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(output_[1]);
    char said[256] = {};
    ASSERT_GT(::read(output_[0], said, sizeof said - 1), 0);
    said_ = said;
    if (said_.find("serving") == std::string::npos) GTEST_SKIP() << said_;
  }
  ~monitord() override {
    if (server_ > 0) {
      EXPECT_EQ(end_server(), 0);
    }
    ::close(output_[0]);
  }
  int end_server() {
    int status = 0;
    ::kill(server_, SIGTERM);
    ::waitpid(server_, &status, 0);
    server_ = -1;
    if (said_.find("serving") == std::string::npos) return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  const std::string socket_ = "@pinfold-test-" + std::to_string(::getpid());
  std::string said_;
  int output_[2] = {-1, -1};
  pid_t server_ = -1;
};

// Runs in a child without privileges. Returns 0 when a registration is found stale after its memory was replaced by a
// system call that only the kernel sees.
int notice_as_nobody(const std::string& socket) {
  ::setenv("PINFOLD_MONITORD", socket.c_str(), 1);
  if (::getuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 1;
  constexpr std::size_t bytes = 65536;
  pinfold::cache cache(fake_registrar{std::make_shared<fake_device>()}, {.monitor = monitor_choice::bpf});
  std::fprintf(stderr, "%s\n", cache.monitors().c_str());
  if (cache.monitors() != "bpf") return 2;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int round = 0; round < 1000; ++round) {
    if (!cache.acquire(at, bytes) || !cache.find(at, bytes)) return 3;
    if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) return 4;
    if (cache.find(at, bytes)) return 5;
  }
  return 0;
}

TEST_F(monitord, serves_a_program_without_privileges) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(notice_as_nobody(socket_));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(monitord, has_descriptors_for_all_it_may_serve) {
  rlimit of_server{};
  ASSERT_EQ(::prlimit(server_, RLIMIT_NOFILE, nullptr, &of_server), 0);
  EXPECT_EQ(of_server.rlim_cur, of_server.rlim_max);
}

TEST_F(monitord, second_monitord_at_the_same_socket_is_refused) {
  const auto seen = run("monitord --socket " + socket_);
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find(socket_), std::string::npos) << seen.complaints;
}

TEST(monitord_usage, refuses_invalid_permissions) {
  expect_refused("monitord --mode 9", "octal");
  expect_refused("monitord --mode 066666", "octal");
}

}  // namespace
}  // namespace pinfold::testing::cli_monitord_test
