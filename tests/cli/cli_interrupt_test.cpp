// SPDX-License-Identifier: BSD-3-Clause
// Ctrl-C ends the tool at once, whatever signal handlers its libraries install.
#include "support/processes/background_run.hpp"
#include "support/processes/tool_run.hpp"

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace pinfold::testing::cli_interrupt_test {
namespace {

using namespace std::chrono_literals;

constexpr int by_signal = -1;  // as `outcome::status` has it
constexpr int tries = 8;       // spread over the start, most of which is spent in fi_getinfo()

// Returns the status of a run that gets SIGINT after this time; fails when the run does not end.
int interrupted_after(std::chrono::milliseconds time, const std::string& arguments) {
  background_run running(arguments);
  std::this_thread::sleep_for(time);
  ::kill(running.pid(), SIGINT);
  const auto seen = running.ended_within(100s);
  EXPECT_TRUE(seen) << "pinfold " << arguments << " hangs at a SIGINT after " << time.count() << " ms";
  return seen ? seen->status : by_signal;
}

TEST(cli_interrupt, interrupt_ends_info) {
  for (int i = 0; i < tries; ++i) {
    const auto status = interrupted_after(20ms + 60ms * i, "info");
    EXPECT_TRUE(status == by_signal || status == 0) << status;  // 0: the run was faster than the signal
  }
}

}  // namespace
}  // namespace pinfold::testing::cli_interrupt_test
