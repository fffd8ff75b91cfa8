// SPDX-License-Identifier: BSD-3-Clause
// Processes of other users at the sockets of an exporter and of an importer that run as root: they get nothing, keep
// nothing, and delay no importer.
#include "fd_passing/client.hpp"
#include "fd_passing/process.hpp"
#include "fd_passing/server.hpp"
#include "fd_passing/wire.hpp"
#include "support/host/lingering.hpp"
#include "support/host/pattern.hpp"
#include "support/host/privileges.hpp"
#include "support/host/refused_call.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/pid_namespace.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing::other_users_test {
namespace {

using namespace std::chrono_literals;
using fd_passing::socket_purpose;
using std::chrono::steady_clock;

constexpr std::size_t bytes = 1 << 16;

struct visit {
  std::uint64_t exporter = 0;
  int connections = 0;
  bool says_opening = false;
  bool passes = false;  ///< a descriptor whose close lingers
};

/// Sends a descriptor whose last reference is then in the message. If the kernel refuses that, leaves it open.
void pass_lingering(int to) {
  const int sent = lingering_socket();
  const std::byte body{};
  if (os::send_message(to, {&body, 1}, {&sent, 1}, MSG_DONTWAIT) == 0) ::close(sent);
}

/// Connects, and says `opening` for all memory of a small exporter. Returns how often it was admitted; keeps the
/// connections.
int visits(const visit& what) {
  const auto to =
      fd_passing::address_of(what.exporter, what.says_opening ? socket_purpose::release : socket_purpose::descriptors);
  int admitted = 0;
  for (int i = 0; i < what.connections; ++i) {
    const int one = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (one < 0 || ::connect(one, reinterpret_cast<const sockaddr*>(&to.name), to.bytes) != 0) return -1;
    if (what.passes) pass_lingering(one);
    for (std::uint64_t serial = 1; what.says_opening && !what.passes && serial <= 4; ++serial) {
      const auto opening = sealed({.exporter = what.exporter, .serial = serial, .tag = serial});
      release_message said;
      if (::send(one, &opening, sizeof opening, MSG_NOSIGNAL) < 0) break;
      if (::recv(one, &said, sizeof said, 0) != sizeof said) break;
      admitted += said.kind == release_kind::admitted ? 1 : 0;
    }
  }
  return admitted;
}

int be_a_stranger(line& parent) {
  const rlimit files{4096, 4096};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0 || !become_nobody()) return 1;
  while (const auto what = parent.receive<visit>())
    if (!parent.send(visits(*what))) return 1;
  return 0;
}

class other_users : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can start a process of another user";
    stranger.emplace(be_a_stranger);
  }

  std::optional<child_process> stranger;
};

TEST_F(other_users, R66_are_not_admitted_by_an_exporter_of_root) {
  auto exporter = memfd_exporter::create({.release = true}).value();
  auto retired = exporter.allocate(bytes).value();
  const auto buffer = exporter.allocate(bytes).value();
  const auto handle = buffer.handle();
  EXPECT_EQ(stranger->ask<int>(visit{handle.exporter, 1100, true}), 0);
  EXPECT_TRUE(exporter.retire(std::move(retired), 60s).value().all_let_go());
  auto listener = release_listener::create().value();
  import_cache cache(releasing_importer<memfd_importer>(memfd_importer(), listener));
  const auto attached = listener.attach(cache).value();
  const auto lease = cache.acquire(peer_id{1}, handle, handle.base, handle.size);
  EXPECT_TRUE(lease) << describe(lease.error());
}

TEST_F(other_users, make_no_importer_of_root_lose_its_descriptors) {
  auto exporter = memfd_exporter::create({.serve = true}).value();
  const auto buffer = exporter.allocate(bytes).value();
  EXPECT_EQ(stranger->ask<int>(visit{buffer.handle().exporter, 1100, false}), 0);
  memfd_importer importer({.via = memfd_via::scm});
  const auto made = importer.open(peer_id{1}, buffer.handle());
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_TRUE(importer.close(made->registration));
}

TEST_F(other_users, close_no_connection_of_the_exporters_own_user) {
  const auto exporter = memfd_exporter::create({.serve = true}).value();
  const auto to = fd_passing::address_of(exporter.id());
  std::vector<os::file> own;
  std::vector<pollfd> watched;
  for (std::size_t i = 0; i < fd_passing::server::most_clients; ++i) {
    own.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(own.back().number(), reinterpret_cast<const sockaddr*>(&to.name), to.bytes), 0);
    watched.push_back({.fd = own.back().number(), .events = POLLIN, .revents = 0});
  }
  EXPECT_EQ(stranger->ask<int>(visit{exporter.id(), 50, false}), 0);
  EXPECT_EQ(::poll(watched.data(), watched.size(), 300), 0) << "a connection ended";
}

/// Says which exporter it would be, and ends.
int name_an_exporter(line& parent) { return become_nobody() && parent.send(fd_passing::new_origin().value()) ? 0 : 1; }
int listen_as_told(line& parent) {
  const auto name = parent.receive<std::uint64_t>();
  if (!name || !become_nobody()) return 1;
  const auto listener = fd_passing::listen_at(*name, socket_purpose::descriptors);
  return parent.send(listener.has_value()) && !parent.receive<int>() ? 0 : 1;
}

TEST_F(other_users, that_start_with_an_exporter_do_not_take_its_place) {
  for (int tries = 0; tries < 100; ++tries) {
    child_process exporting(name_an_exporter);
    child_process taking(listen_as_told);
    const auto from = exporting.talk().receive<fd_passing::exporter_id>();
    ASSERT_TRUE(from);
    if (from->start_time != fd_passing::start_time_of(taking.pid())) continue;  // the clock ticks 100 times a second
    exporting.reap();
    ASSERT_TRUE(taking.ask<bool>(from->exporter));
    const auto connected = fd_passing::connect_to(*from);
    EXPECT_TRUE(!connected && connected.error() == errc::not_permitted);
    return;
  }
  GTEST_SKIP() << "no two processes started within a tick of the clock";
}

/// Starts an exporter of another user in a PID namespace.
child_process export_from_a_pid_namespace(bool of_another_user_namespace) {
  return in_pid_namespace(proc_of::itself, [=](line& parent) {
    if (!become_nobody() || (of_another_user_namespace && ::unshare(CLONE_NEWUSER) != 0)) return 1;
    auto exporter = memfd_exporter::create({.serve = true}).value();
    const auto buffer = exporter.allocate(bytes).value();
    return parent.send(buffer.handle()) && !parent.receive<int>() ? 0 : 1;
  });
}

TEST_F(other_users, export_to_root_from_a_pid_namespace) {
  auto exporting = export_from_a_pid_namespace(false);
  const auto handle = exporting.talk().receive<memfd_handle>();
  if (!handle) GTEST_SKIP() << "no PID namespace may be made here";
  memfd_importer importer({.via = memfd_via::scm});
  const auto made = importer.open(peer_id{1}, *handle);
  EXPECT_TRUE(made) << describe(made.error());
}

// The owner of a user namespace may give a process the number and the start of an exporter that has ended.
TEST_F(other_users, choose_no_numbers_in_user_namespaces_of_their_own_that_root_trusts) {
  auto exporting = export_from_a_pid_namespace(true);
  const auto handle = exporting.talk().receive<memfd_handle>();
  if (!handle) GTEST_SKIP() << "no PID namespace or user namespace may be made here";
  const auto connected = fd_passing::connect_to({handle->exporter, handle->start_time, handle->pid});
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error(), errc::not_permitted) << describe(connected.error());
  EXPECT_STREQ(connected.error().message, "the exporter's socket belongs to another user");
}

/// Exports memory over a kernel without a socket option, unless that is 0. Then says whether a retirement and the end
/// of the exporter went well, and how long they took.
struct ending {
  bool all_let_go;
  steady_clock::duration took;
};
int export_and_end(line& parent) {
  const int lacking = parent.receive<int>().value_or(0);
  if (lacking != 0 && !refuse_socket_option(lacking)) return 1;
  std::optional exporter = memfd_exporter::create({.serve = true, .release = true}).value();
  auto retired = exporter->allocate(bytes).value();
  const auto buffer = exporter->allocate(bytes).value();
  if (!parent.send(buffer.handle()) || !parent.receive<int>()) return 1;
  const auto began = steady_clock::now();
  const bool all_let_go = exporter->retire(std::move(retired), 60s).value().all_let_go();
  exporter.reset();
  return parent.send(ending{all_let_go, steady_clock::now() - began}) ? 0 : 1;
}

class other_users_that_pass_descriptors : public other_users {
 protected:
  /// The messages, with the last references, lie in the sockets when the exporter accepts the connections.
  void expect_no_delay(int lacking) {
    bool fast = false;  // once: a busy machine delays each
    for (int tries = 0; tries < 5 && !fast && !HasFatalFailure(); ++tries) try_without_delay(lacking, fast);
    EXPECT_TRUE(fast);
  }

 private:
  void try_without_delay(int lacking, bool& fast) {
    if (!stranger) FAIL();
    child_process exporting(export_and_end);
    const auto handle = exporting.ask<memfd_handle>(lacking);
    exporting.stop();
    for (const bool to_release : {false, true})
      ASSERT_EQ(stranger->ask<int>(visit{handle.exporter, 2, to_release, true}), 0);
    exporting.go_on();
    const auto began = steady_clock::now();
    expect_lease(handle);
    const auto took = steady_clock::now() - began;
    const auto last = exporting.ask<ending>(0);
    EXPECT_TRUE(last.all_let_go);
    fast = took < lingers_for / 2 && last.took < lingers_for / 2;
  }

  static void expect_lease(const memfd_handle& handle) {
    auto listener = release_listener::create().value();
    import_cache cache(releasing_importer<memfd_importer>(memfd_importer({.via = memfd_via::scm}), listener));
    const auto attached = listener.attach(cache).value();
    const auto lease = cache.acquire(peer_id{1}, handle, handle.base, handle.size);
    EXPECT_TRUE(lease) << describe(lease.error());
  }
};

TEST_F(other_users_that_pass_descriptors, delay_neither_an_importer_nor_the_exporters_end) { expect_no_delay(0); }

TEST_F(other_users_that_pass_descriptors, delay_neither_where_the_kernel_cannot_refuse_them) {
  expect_no_delay(option_pass_rights);
}

TEST_F(other_users_that_pass_descriptors, delay_no_exporter_that_is_not_made_after_all) {
  child_process exporting([](line& parent) {
    if (!refuse_socket_option(option_pass_rights)) return 1;
    auto named = fd_passing::listen_as_new(true, true);
    if (!named || !parent.send(named->id.exporter) || !parent.receive<int>()) return 1;
    const auto began = steady_clock::now();
    {
      const auto ended = std::move(named);
    }
    return parent.send(steady_clock::now() - began) ? 0 : 1;
  });
  const auto exporter = exporting.talk().receive<std::uint64_t>();
  ASSERT_TRUE(exporter);
  for (const bool to_release : {false, true}) ASSERT_EQ(stranger->ask<int>(visit{*exporter, 2, to_release, true}), 0);
  EXPECT_LT(exporting.ask<steady_clock::duration>(0), lingers_for / 2);
}

/// A process of another user that listens at the names of an exporter, and never answers.
int take_names(line& parent) {
  if (!become_nobody()) return 1;
  const auto exporter = parent.receive<std::uint64_t>();
  bool took = exporter.has_value();
  for (const auto purpose : {socket_purpose::descriptors, socket_purpose::release}) {
    const auto at = fd_passing::address_of(exporter.value_or(0), purpose);
    const int one = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    took = took && ::bind(one, reinterpret_cast<const sockaddr*>(&at.name), at.bytes) == 0 && ::listen(one, 5) == 0;
  }
  return parent.send(took) && !parent.receive<int>() ? 0 : 1;
}

TEST_F(other_users, that_took_the_names_of_an_exporter_are_not_asked_by_root) {
  auto exporter = memfd_exporter::create().value();  // has no sockets
  const auto buffer = exporter.allocate(bytes).value();
  const auto handle = buffer.handle();
  child_process taker(take_names);
  ASSERT_TRUE(taker.ask<bool>(std::uint64_t{handle.exporter}));
  memfd_importer plain({.via = memfd_via::scm});
  const auto made = plain.open(peer_id{1}, handle);
  EXPECT_EQ(made.error(), errc::not_permitted) << describe(made.error());
  auto listener = release_listener::create().value();
  import_cache cache(releasing_importer<memfd_importer>(memfd_importer(), listener));
  const auto attached = listener.attach(cache).value();
  const auto lease = cache.acquire(peer_id{1}, handle, handle.base, handle.size);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error(), errc::not_permitted) << describe(lease.error());
}

}  // namespace
}  // namespace pinfold::testing::other_users_test
