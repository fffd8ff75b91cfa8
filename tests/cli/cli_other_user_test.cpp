// SPDX-License-Identifier: BSD-3-Clause
// Root, and an ordinary user, ask for the statistics page of another user's process.
#include "support/doubles/fake_registrar.hpp"
#include "support/fixtures/forged_page.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/privileges.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/tool_run.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::testing::cli_other_user_test {
namespace {

struct cli_other_user : ::testing::Test {
  cli_other_user() { ::unsetenv("PINFOLD_STATS_DIR"); }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root has processes of two users";
  }
};

// Publishes where this user's processes do, and lives until the parent hangs up.
int publishes(line& talk) {
  local_fixture f({.name = "shown", .publish_statistics = true});
  f.touch(0x100000, 0x101000);
  talk.send(true);
  static_cast<void>(talk.receive<bool>());
  const auto page = observation::find_page(observation::page_directory(), ::getpid());
  return page && std::filesystem::remove(*page) ? 0 : 1;  // a child that does not exit leaves it
}

TEST_F(cli_other_user, root_sees_the_page_of_a_process_that_it_names) {
  child_process other([](line& talk) { return become_nobody() ? publishes(talk) : 1; });
  ASSERT_TRUE(other.talk().receive<bool>());
  const auto pid = std::to_string(other.pid());
  for (const auto& command : {"top --once " + pid, "metrics " + pid}) {
    const auto seen = run(command);
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    EXPECT_NE(seen.out.find("shown"), std::string::npos) << seen.out;
  }
  EXPECT_EQ(run("watch --seconds 100ms " + pid).status, 0);
  other.talk().hang_up();
  EXPECT_EQ(other.reap(), 0);
}

TEST_F(cli_other_user, an_ordinary_user_is_told_which_folder_may_not_be_read) {
  child_process other(publishes);
  ASSERT_TRUE(other.talk().receive<bool>());
  const auto pid = std::to_string(other.pid());
  child_process asks([&](line&) {
    if (!become_nobody()) return 1;
    for (const auto& command : {"top --once " + pid, "metrics " + pid, "watch " + pid}) {
      const auto seen = run(command);
      EXPECT_EQ(seen.status, 1) << command;
      EXPECT_NE(seen.complaints.find("/dev/shm/pinfold-stats-0: not_permitted"), std::string::npos) << seen.complaints;
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(asks.reap(), 0);
  other.talk().hang_up();
  EXPECT_EQ(other.reap(), 0);
}

TEST_F(cli_other_user, a_process_without_a_page_is_told_the_folder_that_was_looked_in) {
  child_process other([](line& talk) {
    if (!become_nobody()) return 1;
    talk.send(true);
    static_cast<void>(talk.receive<bool>());
    return 0;
  });
  ASSERT_TRUE(other.talk().receive<bool>());
  const auto pid = std::to_string(other.pid());
  for (const auto& command : {"top --once " + pid, "metrics " + pid, "watch " + pid}) {
    const auto seen = run(command);
    EXPECT_EQ(seen.status, 1) << command;
    EXPECT_NE(seen.complaints.find("process " + pid + " publishes no statistics page in /dev/shm/pinfold-stats-"),
              std::string::npos)
        << seen.complaints;
  }
}

TEST_F(cli_other_user, a_folder_that_another_user_made_in_this_ones_name_is_not_read) {
  child_process apart([](line&) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") != 0)
      return 77;
    const auto folder = observation::page_directory();
    if (::mkdir(folder.c_str(), 0700) != 0 || ::chown(folder.c_str(), 1234, 1234) != 0) return 77;
    for (const char* command : {"top --once", "metrics"}) {
      const auto seen = run(command);
      EXPECT_EQ(seen.status, 1) << command;
      EXPECT_NE(seen.complaints.find(folder + " belongs to user 1234"), std::string::npos) << seen.complaints;
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  const int status = apart.reap();
  if (status == 77) GTEST_SKIP() << "a mount is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST_F(cli_other_user, pages_of_another_user_in_this_ones_folder_are_not_shown) {
  child_process apart([](line&) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") != 0)
      return 77;
    const auto folder = observation::page_directory();
    if (::mkdir(folder.c_str(), 0700) != 0) return 77;
    forged_page page;
    set_text(page.cache.name, "forged");
    const auto path = page.write(folder);
    const auto pid = std::to_string(page.header.pid);
    EXPECT_NE(run("top --once").out.find("forged"), std::string::npos);
    if (::chown(path.c_str(), 1234, 1234) != 0) return 77;
    for (const auto& command : {std::string("top --once"), "top --once " + pid, std::string("metrics"),
                                "metrics " + pid, "watch --oldest --seconds 100ms " + pid}) {
      const auto seen = run(command);
      EXPECT_EQ(seen.out.find("forged"), std::string::npos) << command;
      const bool says_why = seen.complaints.find("belongs to another user") != std::string::npos;
      EXPECT_TRUE(says_why || command.starts_with("top")) << command << seen.complaints;
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  const int status = apart.reap();
  if (status == 77) GTEST_SKIP() << "a mount is not permitted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pinfold::testing::cli_other_user_test
