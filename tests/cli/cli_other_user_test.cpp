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

// A copy of a library whose link to its debug information names a FIFO, in a new folder.
std::string library_with_a_trap() {
  std::string folder = "/tmp/pinfold_trap_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return {};
  auto library = folder + "/library.so";
  const auto link = folder + "/information";
  const auto make = "touch " + link + " && objcopy --strip-all --add-gnu-debuglink=" + link +
                    " '" PINFOLD_UNLOADABLE "' " + library + " && rm " + link + " && mkfifo " + link;
  if (std::system(make.c_str()) != 0) library.clear();
  return library;
}

/// Unmaps registered memory in that library until the parent hangs up; `also(round)` before each time.
int unmap_in(const std::string& path, line& talk, const std::function<void(int)>& also) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW);
  auto* const unmaps = library == nullptr ? nullptr : ::dlsym(library, "unloadable_unmaps");
  if (unmaps == nullptr) return 1;
  {
    pinfold::cache<fake_registrar> cache(fake_registrar(std::make_shared<fake_device>()),
                                         {.name = "trap", .publish_statistics = true});
    talk.send(true);
    int round = 0;
    for (pollfd over{talk.number(), POLLIN, 0}; ::poll(&over, 1, 20) == 0; ++round) {
      also(round);
      void* const memory = ::mmap(nullptr, 0x10000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      static_cast<void>(cache.acquire(memory, 0x10000));
      reinterpret_cast<void (*)(void*, std::size_t)>(unmaps)(memory, 0x10000);
    }
  }
  const auto page = observation::find_page(observation::page_directory(), ::getpid());
  return page && std::filesystem::remove(*page) ? 0 : 1;
}

TEST_F(cli_other_user, R70_stacks_are_named_without_files_that_the_process_names) {
  child_process other([](line& talk) {
    const auto library = become_nobody() ? library_with_a_trap() : std::string();
    const int status = unmap_in(library, talk, [](int) {});
    std::filesystem::remove_all(std::filesystem::path(library).parent_path());
    return status;
  });
  ASSERT_TRUE(other.talk().receive<bool>()) << "objcopy is of Debian's binutils";
  const auto seen = run("watch --stacks --kind gone --limit 30 --seconds 60s " + std::to_string(other.pid()));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  if (seen.out.find("hooks") == std::string::npos) GTEST_SKIP() << "the hooks do not see munmap here";
  EXPECT_NE(seen.out.find("unloadable_unmaps+"), std::string::npos) << seen.out;
  other.talk().hang_up();
  EXPECT_EQ(other.reap(), 0);
}

/// A copy of a library in a new folder, both of the user without privileges.
struct copied_library {
  copied_library() {
    if (::mkdtemp(folder.data()) == nullptr || !std::filesystem::copy_file(PINFOLD_UNLOADABLE, path())) folder.clear();
    for (const auto& one : {folder, path()}) EXPECT_EQ(::chown(one.c_str(), user, user), 0);
  }
  copied_library(const copied_library&) = delete;
  copied_library& operator=(const copied_library&) = delete;
  ~copied_library() { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string path() const { return folder + "/library.so"; }

  static constexpr uid_t user = 65534;  ///< of `become_nobody`
  std::string folder = "/tmp/pinfold_copy_XXXXXX";
};

// Where the part of an ELF file ends that is loaded: symbols and debug information come after it.
off_t end_of_segments(const std::string& elf) {
  const auto* const all = reinterpret_cast<const Elf64_Ehdr*>(elf.data());
  const auto* const segments = reinterpret_cast<const Elf64_Phdr*>(elf.data() + all->e_phoff);
  Elf64_Off end = 0;
  for (int i = 0; i < all->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD) end = std::max(end, segments[i].p_offset + segments[i].p_filesz);
  return static_cast<off_t>(end);
}

TEST_F(cli_other_user, R70_stacks_are_named_though_the_process_truncates_its_files) {
  const copied_library library;
  child_process other([&](line& talk) {
    if (!become_nobody()) return 1;
    std::stringstream text;
    text << std::ifstream(library.path(), std::ios::binary).rdbuf();
    return unmap_in(library.path(), talk, [&, rest = end_of_segments(text.str())](int round) {
      constexpr int once_it_was_read = 40;
      if (round == once_it_was_read && ::truncate(library.path().c_str(), rest) != 0) ::_exit(1);
    });
  });
  ASSERT_TRUE(other.talk().receive<bool>());
  const auto seen = run("watch --stacks --kind gone --limit 100 --seconds 60s " + std::to_string(other.pid()));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  other.talk().hang_up();
  EXPECT_EQ(other.reap(), 0);
}

/// Expects that `watch` names frames in that process's library by their addresses.
void expect_no_names(child_process& other) {
  const auto seen = run("watch --stacks --kind gone --limit 30 --seconds 60s " + std::to_string(other.pid()));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  if (seen.out.find("hooks") == std::string::npos) GTEST_SKIP() << "the hooks do not see munmap here";
  EXPECT_EQ(seen.out.find("unloadable_unmaps+"), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find("in library.so"), std::string::npos) << seen.out;
  other.talk().hang_up();
  EXPECT_EQ(other.reap(), 0);
}

TEST_F(cli_other_user, R70_names_of_huge_files_of_others_are_not_looked_up) {
  const copied_library library;
  child_process other([&](line& talk) {
    constexpr off_t huge = off_t{1} << 30U;
    if (!become_nobody() || ::truncate(library.path().c_str(), huge) != 0) return 1;
    return unmap_in(library.path(), talk, [](int) {});
  });
  ASSERT_TRUE(other.talk().receive<bool>());
  expect_no_names(other);
}

// The process mounts a folder over that of its library, with a link to a folder of this test's root.
TEST_F(cli_other_user, R70_names_in_files_outside_of_the_process_root_are_not_looked_up) {
  const copied_library decoy;
  const copied_library library;
  const auto folder = library.folder + "/folder";
  std::filesystem::create_directory(folder);
  std::filesystem::rename(library.path(), folder + "/library.so");
  child_process other([&](line& talk) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    return unmap_in(folder + "/library.so", talk, [&](int round) {
      if (round > 0) return;
      if (::mount("none", library.folder.c_str(), "tmpfs", 0, "mode=0755") != 0) ::_exit(1);
      std::filesystem::create_directory_symlink(decoy.folder, folder);
    });
  });
  if (!other.talk().receive<bool>()) GTEST_SKIP() << "a mount is not permitted here";
  expect_no_names(other);
}

}  // namespace
}  // namespace pinfold::testing::cli_other_user_test
