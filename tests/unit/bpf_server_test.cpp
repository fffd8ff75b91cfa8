// SPDX-License-Identifier: BSD-3-Clause
// Processes without privileges get their own ring, and no other process's, from a privileged process (R32).
#include "monitors/bpf/client.hpp"
#include "monitors/bpf/server.hpp"
#include "monitors/bpf/wire.hpp"
#include "os/message.hpp"
#include "support/fixtures/bpf_events.hpp"
#include "support/host/lingering.hpp"
#include "support/host/privileges.hpp"
#include "support/host/processor_time.hpp"
#include "support/host/refused_call.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace pinfold::testing::bpf_server_test {
namespace {

using namespace monitors;

constexpr std::size_t page = 4096;
constexpr std::size_t bytes = 8 * page;

int serve(line& parent, const bpf_server_options& options) {
  const auto server = bpf_server::start(options);
  parent.send(server ? 0 : server.error().code == errc::invalid_argument ? 2 : 1);
  if (!server) return 1;
  std::jthread listener([&] {
    while (parent.receive<int>()) parent.send((*server)->clients());
    (*server)->stop();
  });
  (*server)->run();
  return 0;
}

class bpf_served : public ::testing::Test {
 protected:
  void SetUp() override { start({.socket = name(), .mode = 0666, .most_per_user = 4}); }

  void start(const bpf_server_options& options) {
    server_.emplace([options](line& parent) { return serve(parent, options); });
    const auto started = server_->talk().receive<int>();
    if (started == 1) GTEST_SKIP() << "the kernel programs cannot be loaded";
    ASSERT_EQ(started, 0);
  }

  static std::string name() { return "@pinfold-test-" + std::to_string(::getpid()); }
  static std::string name_of_parent() { return "@pinfold-test-" + std::to_string(::getppid()); }
  static result<std::unique_ptr<bpf_monitor>> join(const std::string& socket = name()) {
    return make_bpf(invalidation::event_log::here(), invalidation::registered_filter::here(),
                    {.socket = socket, .load = false});
  }
  /// Waits until the server has this many clients; it hears of a client's end a little later.
  bool clients_become(std::size_t wanted) {
    std::optional<std::size_t> now;
    for (int i = 0; i < 3000 && now != wanted; ++i) {
      if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      server_->talk().send(0);
      now = server_->talk().receive<std::size_t>();
    }
    return now == wanted;
  }
  child_process& server() { return *server_; }

 private:
  std::optional<child_process> server_;
};

bool sees_its_own(bpf_monitor& monitor, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const memory at(bytes);
    events seen(monitor);
    at.unmap();
    if (!seen.take_cover(at.all())) return false;
  }
  return true;
}

TEST_F(bpf_served, process_without_privileges_sees_all_it_unmaps) {
  child_process client([](line&) {
    const auto socket = name_of_parent();
    if (!become_nobody()) return 0;
    const auto monitor = join(socket);
    if (!monitor) return 1;
    return sees_its_own(**monitor, 1000) ? 0 : 2;
  });
  EXPECT_EQ(client.reap(), 0);
  EXPECT_EQ(server().finish(), 0);
}

TEST_F(bpf_served, server_rests_and_stops_with_a_descriptor_limit_of_0) {
  auto client = join();
  ASSERT_TRUE(client) << describe(client.error());
  const rlimit none{0, 0};
  ASSERT_EQ(::prlimit(server().pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  client->reset();  // ends the poll in progress
  EXPECT_TRUE(rests(server().pid()));
  bool stopped = false;
  server().talk().hang_up();
  for (int i = 0; i < 3000 && !stopped; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stopped = !server().runs();
  }
  EXPECT_TRUE(stopped);
}

TEST_F(bpf_served, clients_do_not_receive_each_others_events) {
  child_process other([](line& parent) {
    const auto monitor = join(name_of_parent());
    if (!monitor) return 1;
    while (parent.receive<int>()) parent.send(sees_its_own(**monitor, 10));
    return 0;
  });
  const auto monitor = join();
  ASSERT_TRUE(monitor) << describe(monitor.error());
  other.talk().send(0);
  EXPECT_EQ(other.talk().receive<bool>(), true);
  const auto before = (*monitor)->kernel_generation()->load();
  other.talk().send(0);
  EXPECT_EQ(other.talk().receive<bool>(), true);
  EXPECT_EQ((*monitor)->kernel_generation()->load(), before);
  EXPECT_TRUE(sees_its_own(**monitor, 10));
  EXPECT_TRUE(clients_become(2));
  EXPECT_EQ(other.finish(), 0);
  EXPECT_TRUE((*monitor)->works());
}

TEST_F(bpf_served, second_monitor_of_a_process_is_refused_and_the_first_keeps_working) {
  auto first = join();
  ASSERT_TRUE(first) << describe(first.error());
  const auto second = join();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(), errc::unsupported);
  EXPECT_TRUE(sees_its_own(**first, 10));
  for (int again = 0; again < 20; ++again) {
    first->reset();
    first = join();
    ASSERT_TRUE(first) << again << describe(first.error());
    EXPECT_TRUE(sees_its_own(**first, 1));
  }
  EXPECT_TRUE(clients_become(1));
}

os::file connect(const std::string& name) {
  const auto address = bpf_address::of(name);
  os::file socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address->name), address->bytes) != 0) return {};
  return socket;
}

TEST_F(bpf_served, ring_of_another_process_is_not_handed_out) {
  const auto socket = connect(name());
  const auto invited = bpf_receive(socket.number());
  ASSERT_TRUE(invited);
  // Even when the other process cooperates.
  child_process other([&](line& parent) {
    bpf_accept(invited->message.secret);
    parent.send(1);
    return parent.receive<int>() ? 1 : 0;
  });
  ASSERT_TRUE(other.talk().receive<int>());
  ASSERT_TRUE(bpf_send(socket.number(), {}));
  const auto got = bpf_receive(socket.number());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->message.refused, EPERM);
  EXPECT_FALSE(got->ring);
  EXPECT_FALSE(got->links[0]);
  EXPECT_TRUE(clients_become(0));
}

TEST_F(bpf_served, client_without_the_secret_is_refused) {
  for (const bool wrong : {false, true}) {
    const auto socket = connect(name());
    auto invited = bpf_receive(socket.number());
    ASSERT_TRUE(invited);
    ++invited->message.secret.second;
    if (wrong) bpf_accept(invited->message.secret);
    ASSERT_TRUE(bpf_send(socket.number(), {}));
    const auto got = bpf_receive(socket.number());
    ASSERT_TRUE(got);
    EXPECT_EQ(got->message.refused, EPROTO);
    EXPECT_FALSE(got->ring);
  }
}

TEST_F(bpf_served, secret_accepted_by_one_process_cannot_be_taken_by_another) {
  const auto socket = connect(name());
  const auto invited = bpf_receive(socket.number());
  ASSERT_TRUE(invited);
  bpf_accept(invited->message.secret);
  child_process other([&](line&) {
    bpf_accept(invited->message.secret);
    return 0;
  });
  EXPECT_EQ(other.reap(), 0);
  ASSERT_TRUE(bpf_send(socket.number(), {}));
  const auto got = bpf_receive(socket.number());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->message.refused, 0) << "still ours";
  EXPECT_TRUE(got->ring);
}

TEST_F(bpf_served, client_cannot_detach_programs_through_link_descriptors) {
  auto got = bpf_subscribe_at(name());
  ASSERT_TRUE(got) << describe(got.error());
  for (const auto& link : got->links) {
    bpf_attr what = bpf_nothing();
    what.link_detach.link_fd = static_cast<std::uint32_t>(link.number());
    EXPECT_NE(bpf_call(BPF_LINK_DETACH, what), 0);
  }
  const auto monitor =
      make_subscribed_bpf(invalidation::event_log::here(), invalidation::registered_filter::here(), std::move(*got));
  ASSERT_TRUE(monitor) << describe(monitor.error());
  EXPECT_EQ(open_bpf_descriptors().size(), bpf_link_count) << "the ring's descriptor is closed";
  EXPECT_TRUE(sees_its_own(**monitor, 10));
}

TEST_F(bpf_served, monitor_keeps_working_when_the_server_is_killed) {
  const auto monitor = join();
  ASSERT_TRUE(monitor) << describe(monitor.error());
  const auto programs = programs_of_this_process();
  server().kill();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(sees_its_own(**monitor, 100));
  EXPECT_TRUE((*monitor)->works());
  ASSERT_FALSE(programs.empty());
  EXPECT_TRUE(!may_find_programs() || program_exists(programs.front()));
}

TEST_F(bpf_served, programs_are_unloaded_with_the_last_client) {
  auto monitor = join();
  ASSERT_TRUE(monitor) << describe(monitor.error());
  const auto programs = programs_of_this_process();
  ASSERT_EQ(programs.size(), bpf_link_count);
  monitor->reset();
  for (const auto id : programs) EXPECT_TRUE(gone_soon(id));
  EXPECT_TRUE(clients_become(0));
  monitor = join();
  ASSERT_TRUE(monitor) << describe(monitor.error());
  EXPECT_TRUE(sees_its_own(**monitor, 10)) << "and they come again";
}

TEST_F(bpf_served, programs_that_other_users_had_are_unloaded_a_number_of_times) {
  if (!may_find_programs()) GTEST_SKIP() << "only root sees the programs";
  EXPECT_EQ(server().finish(), 0);
  start({.socket = name(), .mode = 0666, .most_dropped = 1});
  const auto programs_of_nobody = [](line& parent) {
    const auto socket = name_of_parent();
    if (!become_nobody()) return 1;
    const auto monitor = join(socket);
    const auto programs = programs_of_this_process();
    return monitor && programs.size() == bpf_link_count && parent.send(programs.front()) ? 0 : 1;
  };
  std::vector<std::uint32_t> first;
  for (int i = 0; i < 2; ++i) {
    child_process client(programs_of_nobody);
    const auto program = client.talk().receive<std::uint32_t>();
    EXPECT_EQ(client.reap(), 0);
    ASSERT_TRUE(program);
    first.push_back(*program);
    EXPECT_TRUE(i > 0 || gone_soon(*program));
  }
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_TRUE(program_exists(first.back()));
  EXPECT_EQ(server().finish(), 0);
  EXPECT_TRUE(gone_soon(first.back()));
}

TEST_F(bpf_served, R30_client_keeps_working_after_closefrom) {
  for (const bool reuse : {false, true}) {
    child_process client([reuse](line&) {
      const auto monitor = join(name_of_parent());
      if (!monitor) return 1;
      close_from_3(reuse);
      return sees_its_own(**monitor, 10) && (*monitor)->works() ? 0 : 2;
    });
    EXPECT_EQ(client.reap(), 0) << reuse;
  }
}

TEST_F(bpf_served, R30_client_keeps_working_after_the_end_of_the_server_and_closefrom) {
  for (const bool reuse : {false, true}) {
    start({.socket = name(), .mode = 0666});
    child_process client([&](line& parent) {
      server().talk().hang_up();  // its copy of the test's end
      const auto monitor = join(name_of_parent());
      if (!monitor) return 1;
      parent.send(true);
      if (!parent.receive<bool>()) return 2;
      close_from_3(reuse);
      return sees_its_own(**monitor, 10) && (*monitor)->works() ? 0 : 3;
    });
    ASSERT_TRUE(client.talk().receive<bool>());
    EXPECT_EQ(server().finish(), 0);
    client.talk().send(true);
    EXPECT_EQ(client.reap(), 0) << reuse;
  }
}

TEST_F(bpf_served, client_detects_that_its_connection_was_closed) {
  auto got = bpf_subscribe_at(name());
  ASSERT_TRUE(got) << describe(got.error());
  const os::file connection(::fcntl(got->connection.number(), F_DUPFD_CLOEXEC, 0));
  const auto monitor =
      make_subscribed_bpf(invalidation::event_log::here(), invalidation::registered_filter::here(), std::move(*got));
  ASSERT_TRUE(monitor) << describe(monitor.error());
  events seen(**monitor);
  ::shutdown(connection.number(), SHUT_RDWR);
  for (int i = 0; i < 3000 && (*monitor)->works(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE((*monitor)->works());
  EXPECT_TRUE(seen.take_cover({0, UINTPTR_MAX}));
}

TEST_F(bpf_served, one_user_cannot_take_all_slots) {
  child_process client([](line&) {
    const auto socket = name_of_parent();
    if (!become_nobody()) return 0;
    std::vector<os::file> held;
    for (int i = 0; i < 4; ++i) {
      held.push_back(connect(socket));
      const auto invited = bpf_receive(held.back().number());
      if (!invited || invited->message.refused != 0) return 1;
    }
    const auto more = join(socket);
    return !more && more.error() == errc::out_of_resources ? 0 : 2;
  });
  EXPECT_EQ(client.reap(), 0);
}

// Each slot that is given or taken back waited for a grace period of the kernel: 500 took the server 15 seconds, and a
// client waits for 5.
TEST_F(bpf_served, connections_that_were_closed_delay_no_client) {
  for (int i = 0; i < 500; ++i) static_cast<void>(connect(name()));
  const auto client = join();
  EXPECT_TRUE(client) << describe(client.error());
}

/// Connects 4000 times, waits for each answer, and closes the connection.
int connect_often(line& parent, const std::string& name) {
  constexpr std::size_t most = 4000;
  const rlimit many{2 * most, 2 * most};
  ::setrlimit(RLIMIT_NOFILE, &many);
  if (!become_nobody()) return 1;
  const auto address = bpf_address::of(name);
  std::vector<pollfd> open;
  for (std::size_t made = 0, told = 0; made < most || !open.empty();) {
    for (; made < most; ++made) {
      const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&address->name), address->bytes) == 0) {
        open.push_back({.fd = socket, .events = POLLIN, .revents = 0});
        continue;
      }
      ::close(socket);
      break;
    }
    if (told++ == 0) parent.send(true);
    ::poll(open.data(), open.size(), 10);
    std::erase_if(open, [](const pollfd& one) { return one.revents != 0 && ::close(one.fd) == 0; });
  }
  return 0;
}

// Sixteen of them together wait for a grace period of the kernel.
TEST_F(bpf_served, connections_of_one_user_that_wait_for_an_answer_delay_no_other_user) {
  EXPECT_EQ(server().finish(), 0);
  start({.socket = name()});
  child_process crowd([](line& parent) { return parent.receive<int>() ? connect_often(parent, name_of_parent()) : 1; });
  const auto time_of = [](int clients) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < clients; ++i) EXPECT_TRUE(join());
    return std::chrono::steady_clock::now() - began;
  };
  const auto alone = time_of(20);
  crowd.talk().send(0);
  ASSERT_TRUE(crowd.talk().receive<bool>());
  EXPECT_LT(time_of(1), 3 * alone);
}

TEST_F(bpf_served, slots_that_processes_keep_without_a_connection_count) {
  const auto keeps_the_programs = join();
  ASSERT_TRUE(keeps_the_programs) << describe(keeps_the_programs.error());
  child_process client([](line&) {
    const auto socket = name_of_parent();
    if (!become_nobody()) return 0;
    const auto take_and_leave = [&socket](line& parent) {
      bool joined = true;
      for (int i = 0; i < 2; ++i) joined = joined && join(socket).has_value();  // the second replaces the first
      parent.send(joined);
      static_cast<void>(parent.receive<int>());
      return 0;
    };
    std::vector<std::unique_ptr<child_process>> holders;
    for (int i = 0; i < 4; ++i) {
      holders.push_back(std::make_unique<child_process>(take_and_leave));
      if (holders.back()->talk().receive<bool>() != true) return 1;
    }
    const auto refused = join(socket);
    if (refused || refused.error() != errc::out_of_resources) return 2;
    holders.pop_back();
    for (int i = 0; i < 3000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(20)))
      if (join(socket)) return 0;
    return 3;
  });
  EXPECT_EQ(client.reap(), 0);
}

TEST_F(bpf_served, rings_that_outlive_their_connections_count) {
  child_process client([](line&) {
    const auto socket = name_of_parent();
    if (!become_nobody()) return 0;
    std::vector<os::file> kept;
    for (int i = 0; i < 4; ++i) {
      auto got = bpf_subscribe_at(socket);
      if (!got) return 1;
      kept.push_back(std::move(got->ring));
    }
    constexpr std::size_t ring = sizeof(pinfold_area);
    void* const mapped = ::mmap(nullptr, ring, PROT_READ, MAP_SHARED, kept.back().number(), 0);
    kept.pop_back();
    const auto refused = bpf_subscribe_at(socket);
    if (refused || refused.error() != errc::out_of_resources) return 2;
    ::munmap(mapped, ring);
    return bpf_subscribe_at(socket) ? 0 : 3;
  });
  EXPECT_EQ(client.reap(), 0);
}

// A process that ends leaves its connection to another one, which ends it later.
TEST_F(bpf_served, end_of_a_connection_takes_no_ring_of_the_next_process_with_the_slot) {
  const auto keeps_the_programs = join();
  ASSERT_TRUE(keeps_the_programs) << describe(keeps_the_programs.error());
  child_process heir([](line& talk) {
    const auto socket = name_of_parent();
    std::array<int, 2> ends{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) != 0) return 1;
    child_process first([&](line&) {
      auto got = bpf_subscribe_at(socket);
      const std::array passed{got ? got->connection.number() : -1};
      return got && os::send_message(ends[1], std::as_bytes(std::span("x")), passed, 0) == 0 ? 0 : 1;
    });
    if (first.reap() != 0) return 2;
    talk.send(true);
    static_cast<void>(talk.receive<int>());
    ::close(ends[0]);  // with the connection
    ::close(ends[1]);
    talk.send(true);
    static_cast<void>(talk.receive<int>());
    return 0;
  });
  ASSERT_TRUE(heir.talk().receive<bool>());
  child_process next([](line& parent) {
    const auto monitor = join(name_of_parent());
    if (!monitor) return 1;
    while (parent.receive<int>()) parent.send(sees_its_own(**monitor, 10));
    return 0;
  });
  next.talk().send(0);
  EXPECT_EQ(next.talk().receive<bool>(), true);
  heir.talk().send(0);
  ASSERT_TRUE(heir.talk().receive<bool>());
  EXPECT_TRUE(clients_become(2));
  next.talk().send(0);
  EXPECT_EQ(next.talk().receive<bool>(), true);
  EXPECT_EQ(next.finish(), 0);
  EXPECT_EQ(heir.finish(), 0);
}

TEST_F(bpf_served, client_that_sends_junk_is_disconnected) {
  for (int round = 0; round < 100; ++round) {
    const auto socket = connect(name());
    ASSERT_EQ(::send(socket.number(), &round, sizeof round, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof round));
  }
  const auto monitor = join();  // the server removes a hundred rings before it answers
  ASSERT_TRUE(monitor) << describe(monitor.error());
  EXPECT_TRUE(clients_become(1));
}

TEST_F(bpf_served, client_that_sends_a_longer_message_is_disconnected) {
  const auto socket = connect(name());
  const auto invited = bpf_receive(socket.number());
  ASSERT_TRUE(invited && invited->message.refused == 0) << describe(invited.error());
  const std::array<bpf_message, 2> longer{};
  ASSERT_EQ(::send(socket.number(), &longer, sizeof longer, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof longer));
  const auto got = bpf_receive(socket.number());
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error(), errc::peer_gone);
}

TEST_F(bpf_served, second_server_at_the_same_socket_path_is_refused) {
  child_process second([](line& parent) { return serve(parent, {.socket = name_of_parent()}); });
  EXPECT_EQ(second.talk().receive<int>(), 2);
  EXPECT_TRUE(join());
}

TEST_F(bpf_served, left_over_socket_is_replaced) {
  const auto path = "/tmp/pinfold-test-" + std::to_string(::getpid());
  for (int round = 0; round < 2; ++round) {
    start({.socket = path});
    ASSERT_TRUE(join(path)) << round;
    if (round == 0) server().kill();
  }
  EXPECT_EQ(server().finish(), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(bpf_server, path_of_a_server_that_accepts_nothing_is_refused_at_once) {
  const auto path = ::testing::TempDir() + "pinfold-deaf-" + std::to_string(::getpid());
  const auto at = bpf_address::of(path).value();
  const auto* const to = reinterpret_cast<const sockaddr*>(&at.name);
  const os::file deaf(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const os::file waits(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(deaf.number(), to, at.bytes), 0);
  ASSERT_EQ(::listen(deaf.number(), 0), 0);
  ASSERT_EQ(::connect(waits.number(), to, at.bytes), 0);
  const auto began = std::chrono::steady_clock::now();
  const std::jthread later([&](const std::stop_token& end) {
    for (int i = 0; i < 900 && !end.stop_requested(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const os::file room(::accept(deaf.number(), nullptr, nullptr));
  });
  const auto server = bpf_server::start({.socket = path});
  const auto took = std::chrono::steady_clock::now() - began;
  ::unlink(path.c_str());
  if (!server && server.error() != errc::invalid_argument) GTEST_SKIP() << "the kernel programs cannot be loaded";
  EXPECT_FALSE(server);
  EXPECT_LT(took, std::chrono::seconds(60));
}

TEST(bpf_server, end_does_not_wait_for_what_clients_sent) {
  run_in_child([] {
    ASSERT_TRUE(refuse_socket_option(option_pass_rights));
    const auto socket = "@pinfold-test-" + std::to_string(::getpid());
    auto made = bpf_server::start({.socket = socket});
    if (!made) return;  // the kernel programs cannot be loaded
    const auto asker = connect(socket);
    const std::byte body{};
    const int sent = lingering_socket();
    ASSERT_EQ(os::send_message(asker.number(), {&body, 1}, {&sent, 1}, MSG_DONTWAIT), 0);
    ::close(sent);
    const auto began = std::chrono::steady_clock::now();
    made->reset();
    EXPECT_LT(std::chrono::steady_clock::now() - began, lingers_for / 2);
  });
}

TEST_F(bpf_served, file_that_took_the_name_of_the_socket_stays) {
  const auto path = "/tmp/pinfold-test-" + std::to_string(::getpid());
  start({.socket = path});
  std::filesystem::remove(path);
  std::ofstream(path) << "of another program";
  EXPECT_EQ(server().finish(), 0);
  EXPECT_TRUE(std::filesystem::remove(path));
}

}  // namespace
}  // namespace pinfold::testing::bpf_server_test
