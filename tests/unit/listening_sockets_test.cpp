// SPDX-License-Identifier: BSD-3-Clause
// What other processes can do to the library's sockets from the moment at which these listen.
#include "fd_passing/wire.hpp"
#include "monitors/bpf/server.hpp"
#include "os/file.hpp"
#include "support/host/refused_call.hpp"

#include <pinfold/importers/memfd.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fcntl.h>
#include <future>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::listening_sockets_test {
namespace {

/// What each socket for messages said of descriptors when it began to listen.
std::vector<int> takes_descriptors;

void note(int socket) {
  int kind = 0;
  int taken = -1;
  socklen_t bytes = sizeof kind;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &kind, &bytes) == 0 &&
                     ::getsockopt(socket, SOL_SOCKET, option_pass_rights, &taken, &bytes) == 0;
  if (known && kind == SOCK_SEQPACKET) takes_descriptors.push_back(taken);
}

/// The longest queue of connections that any of them had.
int longest_queue = 0;

/// How often another process takes the second name of an exporter, and its sockets.
int names_to_take = 0;
std::vector<os::file> taken;

/// Takes the other name of an exporter whose first socket got this one.
void take_second(std::string_view first) {
  constexpr std::string_view prefix = "pinfold-export-";
  if (names_to_take == 0 || !first.starts_with(prefix)) return;
  --names_to_take;
  constexpr int hexadecimal = 16;
  const auto number = std::stoull(std::string(first.substr(prefix.size())), nullptr, hexadecimal);
  taken.push_back(fd_passing::listen_at(number, fd_passing::socket_purpose::release).value());
}

TEST(listening_sockets, of_an_exporter_have_their_names_although_another_user_takes_some) {
  names_to_take = 3;
  EXPECT_TRUE(memfd_exporter::create({.serve = true, .release = true}));
  EXPECT_EQ(names_to_take, 0);
}

/// Where a link to the file replaces the socket that gets the path.
std::string replaced_path;
std::string linked_file;

/// Replaces a socket, as the owner of its folder may.
void replace(std::string_view path) {
  if (path != replaced_path) return;
  EXPECT_EQ(::unlink(replaced_path.c_str()), 0);
  EXPECT_EQ(::symlink(linked_file.c_str(), replaced_path.c_str()), 0);
}

TEST(listening_sockets, of_monitord_leave_a_file_alone_whose_link_replaces_them) {
  const auto path = ::testing::TempDir() + "pinfold-monitord-" + std::to_string(::getpid());
  linked_file = path + ".file";
  replaced_path = path;
  const os::file secret(::open(linked_file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, S_IRUSR));
  ASSERT_TRUE(secret);
  const auto server = monitors::bpf_server::start({.socket = path});
  const bool bound = ::unlink(path.c_str()) == 0;
  ::unlink(linked_file.c_str());
  struct stat seen{};
  ASSERT_EQ(::fstat(secret.number(), &seen), 0);
  if (!bound) GTEST_SKIP() << "no programs can be loaded into the kernel: " << describe(server.error());
  EXPECT_EQ(seen.st_mode & 0777U, static_cast<unsigned>(S_IRUSR));
}

/// Where another server starts as soon as one got its name, before that one listens, and what became of it.
std::string contested_path;
std::future<bool> other_starts;

void start_another(std::string_view path) {
  if (path != contested_path) return;
  contested_path.clear();
  other_starts = std::async(std::launch::async, [where = std::string(path)] {
    return monitors::bpf_server::start({.socket = where}).has_value();
  });
  other_starts.wait_for(std::chrono::milliseconds{200});
}

TEST(listening_sockets, of_two_servers_that_start_at_once_one_has_the_path) {
  const auto path = ::testing::TempDir() + "pinfold-monitord-at-once-" + std::to_string(::getpid());
  contested_path = path;
  const auto server = monitors::bpf_server::start({.socket = path});
  if (!other_starts.valid()) GTEST_SKIP() << "no programs can be loaded into the kernel: " << describe(server.error());
  EXPECT_FALSE(other_starts.get());
  ASSERT_TRUE(server) << describe(server.error());
  EXPECT_EQ(::access(path.c_str(), F_OK), 0) << "the socket of the first one is still there";
}

// Connections of other users would be before an importer's.
TEST(listening_sockets, of_an_exporter_have_short_queues) {
  longest_queue = 0;
  ASSERT_TRUE(memfd_exporter::create({.serve = true, .release = true}));
  EXPECT_EQ(longest_queue, 16);
}

TEST(listening_sockets, take_no_descriptors_from_the_first_connection_on) {
  takes_descriptors.clear();
  const auto exporter = memfd_exporter::create({.serve = true, .release = true});
  ASSERT_TRUE(exporter);
  const auto name = "@pinfold-test-" + std::to_string(::getpid());
  const auto monitors = monitors::bpf_server::start({.socket = name});
  if (takes_descriptors.empty()) GTEST_SKIP() << "needs Linux 6.16";
  EXPECT_EQ(takes_descriptors, std::vector<int>(monitors ? 3 : 2, 0));
}

}  // namespace
}  // namespace pinfold::testing::listening_sockets_test

// These take the place of libc's in this program.

extern "C" int bind(int socket, const sockaddr* to, socklen_t bytes) noexcept {
  const auto done = static_cast<int>(::syscall(SYS_bind, socket, to, bytes));
  if (done == 0 && to->sa_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path) + 1) {
    using namespace pinfold::testing::listening_sockets_test;
    const std::string_view name(reinterpret_cast<const sockaddr_un*>(to)->sun_path,
                                bytes - offsetof(sockaddr_un, sun_path));
    if (name.front() == 0) return take_second(name.substr(1)), done;
    const auto path = name.substr(0, name.find('\0'));
    replace(path);
    start_another(path);
  }
  return done;
}

extern "C" int listen(int socket, int backlog) noexcept {
  using namespace pinfold::testing::listening_sockets_test;
  note(socket);
  longest_queue = std::max(longest_queue, backlog);
  return static_cast<int>(::syscall(SYS_listen, socket, backlog));
}
