// SPDX-License-Identifier: BSD-3-Clause
// A process that is user 65534 in a user namespace: the kernel shows it all users that the namespace does not
// have under this number, too.
#include "fd_passing/wire.hpp"
#include "observation/page_file.hpp"
#include "os/own_user.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/pid_namespace.hpp"

#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/message.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <grp.h>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::testing::overflow_user_test {
namespace {

using fd_passing::socket_purpose;
using path = std::array<char, 64>;

constexpr uid_t nobody = 65534;
constexpr uid_t first_mapped = 200'000;

bool become(uid_t user) {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0;
}

struct question {
  bool of_folder;
  path name;
};

bool owns_file(const char* name) {
  const os::file opened(::open(name, O_WRONLY | O_CLOEXEC));
  struct stat seen{};
  return ::fstat(opened.number(), &seen) == 0 && os::is_own_file(opened.number(), seen);
}
bool publishes_in_folder(const char* name) {
  ::setenv("PINFOLD_STATS_DIR", name, 1);
  const auto made = observation::make_page_file();
  return made || made.error().native != EPERM;
}
bool owns(const question& asked) {
  return asked.of_folder ? publishes_in_folder(asked.name.data()) : owns_file(asked.name.data());
}

/// Exports memory, and says of files whether they are its own.
int export_as_nobody(line& parent) {
  if (::unshare(CLONE_NEWUSER) != 0 || !parent.send(true) || !parent.receive<bool>()) return 1;
  if (!become(nobody)) return 1;
  auto exporter = memfd_exporter::create({.serve = true, .release = true}).value();
  const auto buffer = exporter.allocate(4096).value();
  parent.send(buffer.handle());
  while (const auto asked = parent.receive<question>())
    if (!parent.send(owns(*asked))) return 1;
  return 0;
}

struct answers {
  bool descriptor;
  bool admitted;
};

os::file connected(std::uint64_t exporter, socket_purpose to) {
  os::file made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto at = fd_passing::address_of(exporter, to);
  const auto* const name = reinterpret_cast<const sockaddr*>(&at.name);
  return ::connect(made.number(), name, at.bytes) == 0 ? std::move(made) : os::file();
}

/// Asks as an importer does, but does not look whose socket it is.
answers ask_as(uid_t user, const memfd_handle& handle) {
  child_process asker([&](line& parent) {
    if (!become(user)) return 1;
    const auto descriptors = connected(handle.exporter, socket_purpose::descriptors);
    const fd_passing::request question{fd_passing::wire_magic, handle.serial};
    static_cast<void>(::send(descriptors.number(), &question, sizeof question, MSG_NOSIGNAL));
    static_cast<void>(os::readable_within(descriptors, std::chrono::seconds{60}));
    const auto got = fd_passing::receive_reply(descriptors);
    const auto release = connected(handle.exporter, socket_purpose::release);
    const auto opening = sealed({.exporter = handle.exporter, .serial = handle.serial, .tag = 1});
    static_cast<void>(::send(release.number(), &opening, sizeof opening, MSG_NOSIGNAL));
    release_message said;
    const bool answered = ::recv(release.number(), &said, sizeof said, 0) == sizeof said;
    return parent.send(answers{got && got->descriptor, answered && said.kind == release_kind::admitted}) ? 0 : 1;
  });
  return asker.talk().receive<answers>().value();
}

class overflow_user : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can map many users into a namespace";
    exporter.emplace(export_as_nobody);
    if (!exporter->talk().receive<bool>()) GTEST_SKIP() << "no user namespace may be made here";
    const auto process = "/proc/" + std::to_string(exporter->pid());
    const auto map = "0 " + std::to_string(first_mapped) + " 65536";
    ASSERT_TRUE(write_text((process + "/uid_map").c_str(), map) && write_text((process + "/gid_map").c_str(), map));
    ASSERT_TRUE(exporter->talk().send(true));
    handle = exporter->talk().receive<memfd_handle>().value();
  }

  std::optional<child_process> exporter;
  memfd_handle handle{};
};

TEST_F(overflow_user, users_that_its_namespace_does_not_have_get_nothing) {
  for (const uid_t user : {1234U, nobody, first_mapped + 1000}) {
    const auto got = ask_as(user, handle);
    EXPECT_FALSE(got.descriptor) << user;
    EXPECT_FALSE(got.admitted) << user;
  }
}

TEST_F(overflow_user, processes_of_its_own_are_served) {
  const auto got = ask_as(first_mapped + nobody, handle);
  EXPECT_TRUE(got.descriptor);
  EXPECT_TRUE(got.admitted);
}

TEST_F(overflow_user, only_its_own_files_are_its_own) {
  for (const uid_t user : {1234U, nobody, first_mapped + nobody}) {
    path name{"/tmp/pinfold-overflow-XXXXXX"};
    const os::file made(::mkstemp(name.data()));
    ASSERT_EQ(::fchown(made.number(), user, user), 0);
    ASSERT_EQ(::fchmod(made.number(), 0666), 0);
    EXPECT_EQ(exporter->ask<bool>(question{false, name}), user == first_mapped + nobody) << user;
    ::unlink(name.data());
  }
}

TEST_F(overflow_user, only_its_own_folders_are_its_own) {
  for (const uid_t user : {1234U, first_mapped + nobody}) {
    path name{"/tmp/pinfold-overflow-XXXXXX"};
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    ASSERT_EQ(::chown(name.data(), user, user), 0);
    ASSERT_EQ(::chmod(name.data(), 0755), 0);
    EXPECT_EQ(exporter->ask<bool>(question{true, name}), user == first_mapped + nobody) << user;
    std::filesystem::remove_all(name.data());
  }
}

TEST(own_user, is_certain_where_every_user_is_there) {
  EXPECT_EQ(os::match_user(::geteuid()), os::user_match::own);
  EXPECT_EQ(os::match_user(::geteuid() + 1), os::user_match::other);
}

}  // namespace
}  // namespace pinfold::testing::overflow_user_test
