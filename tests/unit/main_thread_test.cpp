// SPDX-License-Identifier: BSD-3-Clause
// Processes whose main thread has ended have not ended.
#include "support/processes/main_thread.hpp"
#include "fd_passing/process.hpp"
#include "inspection/memory.hpp"
#include "monitors/code_scan/own_memory.hpp"
#include "monitors/code_scan/rings.hpp"
#include "node_budget/process.hpp"
#include "observation/process_identity.hpp"
#include "os/backing.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/node_account.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/process_dump.hpp>
#include <pinfold/registrars/mlock.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <utility>

namespace pinfold::testing::main_thread_test {
namespace {

int go_on_without_main_thread(line& parent) {
  end_main_thread([&] {
    const bool told = wait_for_end_of_main_thread(::getpid()) && parent.send(true);
    return told && !parent.receive<int>() ? 0 : 1;
  });
}

constexpr std::size_t bytes = 0x10000;

/// Calls `body` on a thread that is the only one.
template <class Body>
int alone(Body body) {
  end_main_thread([body = std::move(body)] { return wait_for_end_of_main_thread(::getpid()) ? body() : 99; });
}

int shared_file_is_known(line&) {
  return alone([] {
    const os::file file(::memfd_create("pinfold-test", MFD_CLOEXEC));
    if (::ftruncate(file.number(), bytes) != 0) return 2;
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    return detail::backing_of({begin, begin + bytes}) == detail::backing::shared ? 0 : 1;
  });
}
int ring_is_found(line&) {
  return alone([] {
    io_uring_params how{};
    const os::file ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &how)));
    return !ring || monitors::code_scan::has_rings() ? 0 : 1;
  });
}
int own_memory_is_read(line&) {
  return alone([] {
    const std::uint64_t there = 42;
    std::uint64_t seen = 0;
    const auto at = reinterpret_cast<std::uintptr_t>(&there);
    inspection::memory own(0);
    const bool scanned = monitors::code_scan::read_memory(at, &seen, sizeof seen) && std::exchange(seen, 0) == there;
    return scanned && own.failure() == 0 && own.read(at, seen) && seen == there ? 0 : 1;
  });
}
int node_budget_is_opened(line&) {
  return alone([] {
    const node_account account;
    return node_budget::open(account.name(), {.max_bytes = bytes, .pins = false}) ? 0 : 1;
  });
}
using words = std::array<char, 256>;
int say_monitors(line& parent) {
  const cache made(mlock_registrar{}, {.monitor = monitor_choice::hooks});
  words said{};
  made.monitors().copy(said.data(), said.size() - 1);
  return parent.send(said) ? 0 : 1;
}
int say_monitors_alone(line& parent) {
  return alone([&] { return say_monitors(parent); });
}
int keep_an_entry(line& parent) {
  return alone([&] {
    local_fixture f;
    f.touch(bytes, 2 * bytes);
    return parent.send(true) && !parent.receive<int>() ? 0 : 1;
  });
}

class main_thread : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(child.talk().receive<bool>()); }
  child_process child{go_on_without_main_thread};
};

}  // namespace

TEST_F(main_thread, that_has_ended_does_not_end_what_a_process_publishes) {
  EXPECT_TRUE(observation::start_time_of(child.pid()));
  child.kill();
  EXPECT_FALSE(observation::start_time_of(child.pid()));
}

TEST_F(main_thread, that_has_ended_leaves_a_member_its_part_of_a_budget) {
  auto member = node::process_id::here();
  member.pid = static_cast<std::uint64_t>(child.pid());
  member.started = fd_passing::start_time_of(child.pid()).value();
  EXPECT_TRUE(member.known_to_run(member.namespace_inode));
  child.kill();
  EXPECT_FALSE(member.known_to_run(member.namespace_inode));
}

TEST_F(main_thread, that_has_ended_does_not_end_an_exporter) {
  const os::file process(static_cast<int>(::syscall(SYS_pidfd_open, child.pid(), 0)));
  ASSERT_TRUE(process);
  EXPECT_EQ(fd_passing::duplicate_from(process, 0).error(), errc::unsupported);
  child.kill();
  EXPECT_EQ(fd_passing::duplicate_from(process, 0).error(), errc::peer_gone);
}

TEST(own_main_thread, that_has_ended_hides_no_memory_of_the_process_from_it) {
  EXPECT_EQ(child_process(shared_file_is_known).reap(), 0);
  EXPECT_EQ(child_process(ring_is_found).reap(), 0);
  EXPECT_EQ(child_process(own_memory_is_read).reap(), 0);
}

TEST(own_main_thread, that_has_ended_keeps_no_node_budget_and_no_monitor_from_the_process) {
  EXPECT_EQ(child_process(node_budget_is_opened).reap(), 0);
  const auto usual = child_process(say_monitors).talk().receive<words>();
  ASSERT_TRUE(usual);
  EXPECT_EQ(child_process(say_monitors_alone).talk().receive<words>(), usual) << usual->data();
}

TEST(other_main_thread, that_has_ended_does_not_keep_a_process_from_being_dumped) {
  child_process other(keep_an_entry);
  ASSERT_TRUE(other.talk().receive<bool>());
  const auto dump = dump_process(other.pid());
  ASSERT_TRUE(dump) << describe(dump.error());
  ASSERT_EQ(dump->caches.size(), 1U);
  ASSERT_EQ(dump->caches.front().entries.size(), 1U);
  EXPECT_TRUE(dump->caches.front().entries.front().owner_lives);
}

}  // namespace pinfold::testing::main_thread_test
