// SPDX-License-Identifier: BSD-3-Clause
// Members of one account in several PID namespaces, where the same number means different processes.
#include "node_budget/layout.hpp"
#include "support/fixtures/node_account.hpp"
#include "support/processes/pid_namespace.hpp"

#include <pinfold/node_budget.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::node_budget_namespaces_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most = std::size_t{1} << 20U;

enum class order : std::uint8_t { take, close_descriptors, let_a_sibling_take };

/// What a member says first.
struct hello {
  pid_t pid = 0;              ///< as it sees itself
  ino_t namespace_inode = 0;  ///< of its PID namespace
  bool opened = false;
};

/// Tries for a minute: what kills a process of another namespace does not wait until it is dead.
bool takes_all(node_budget& by) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  do {
    if (by.take(most)) return true;
    std::this_thread::sleep_for(1ms);
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

void close_all_but(int number) {
  const auto kept = static_cast<unsigned>(number);
  ::syscall(SYS_close_range, 3U, kept - 1, 0U);
  ::syscall(SYS_close_range, kept + 1, ~0U, 0U);
}

hello introduce(bool opened) {
  struct stat seen{};
  ::stat("/proc/self/ns/pid", &seen);
  return {::getpid(), seen.st_ino, opened};
}

/// Makes all members of the account members of this PID namespace.
void make_namesakes(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const at = ::mmap(nullptr, sizeof(node::account), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) std::_Exit(1);
  for (auto& one : static_cast<node::account*>(at)->members)
    if (one.owner.load() != 0) one.namespace_of_process.store(introduce(true).namespace_inode);
  ::munmap(at, sizeof(node::account));
}

/// Whether another process of this namespace finds room.
bool sibling_takes(const std::string& name) {
  child_process sibling([&](line&) {
    const auto own = node_budget::open(name, {.shared = false, .pins = false});
    return own && (*own)->take(1) ? 0 : 1;
  });
  return sibling.finish() == 0;
}

int serve(const std::string& name, line& home) {
  const auto mine = node_budget::open(name, {.max_bytes = most, .shared = false, .pins = false});
  home.send(introduce(mine.has_value()));
  while (const auto what = home.receive<order>()) {
    bool done = true;
    switch (*what) {
      case order::take: done = takes_all(**mine); break;
      case order::close_descriptors: close_all_but(home.number()); break;
      case order::let_a_sibling_take: done = sibling_takes(name); break;
    }
    home.send(done);
  }
  return 0;
}

class node_budget_namespaces : public ::testing::TestWithParam<proc_of> {
 protected:
  [[nodiscard]] child_process member() const {
    return in_pid_namespace(GetParam(), [this](line& home) { return serve(account_.name(), home); });
  }
  [[nodiscard]] const node_account& account() const noexcept { return account_; }

 private:
  const node_account account_;
};

#define SKIP_WITHOUT(said) \
  if (!(said)) GTEST_SKIP() << "no PID namespace with such a /proc may be made here"

}  // namespace

TEST_P(node_budget_namespaces, what_a_dead_member_of_another_namespace_had_comes_back) {
  const auto mine = account().open(most);
  auto other = member();
  const auto said = other.talk().receive<hello>();
  SKIP_WITHOUT(said);
  ASSERT_TRUE(said->opened);
  EXPECT_EQ(said->pid, 1) << "a number that a process has here, too";
  ASSERT_TRUE(other.ask<bool>(order::take));
  EXPECT_EQ(mine->members().at(1).pid, 1);
  EXPECT_FALSE(mine->take(1)) << "it lives";
  other.kill();
  EXPECT_TRUE(takes_all(*mine));
  EXPECT_EQ(mine->members().size(), 1U);
}

TEST_P(node_budget_namespaces, a_member_of_another_namespace_takes_back_what_a_dead_one_here_had) {
  auto other = member();
  const auto said = other.talk().receive<hello>();
  SKIP_WITHOUT(said);
  child_process here([&](line& home) { return serve(account().name(), home); });
  ASSERT_TRUE(here.talk().receive<hello>());
  ASSERT_TRUE(here.ask<bool>(order::take));
  here.kill();
  EXPECT_TRUE(other.ask<bool>(order::take));
}

// The kernel may give the number of a namespace that ended to a new one, whose first process has the PID 1 again. Here
// the test writes the new number into the account.
TEST_P(node_budget_namespaces, a_member_takes_back_what_its_namesake_of_a_past_namespace_had) {
  auto past = member();
  SKIP_WITHOUT(past.talk().receive<hello>());
  ASSERT_TRUE(past.ask<bool>(order::take));
  past.kill();
  std::this_thread::sleep_for(30ms);  // to a clock tick, when a process started tells it from another
  auto namesake = in_pid_namespace(GetParam(), [this](line& home) {
    make_namesakes(account().path());
    return serve(account().name(), home);
  });
  ASSERT_TRUE(namesake.talk().receive<hello>());
  EXPECT_TRUE(namesake.ask<bool>(order::take));
}

// docs/use/node-budget.md, Assumptions.
TEST_P(node_budget_namespaces, a_program_that_closes_descriptors_keeps_its_part_for_its_own_namespace_only) {
  const auto mine = account().open(most);
  auto other = member();
  const auto said = other.talk().receive<hello>();
  SKIP_WITHOUT(said);
  ASSERT_TRUE(other.ask<bool>(order::take));
  ASSERT_TRUE(other.ask<bool>(order::close_descriptors));
  EXPECT_FALSE(other.ask<bool>(order::let_a_sibling_take));
  EXPECT_TRUE(takes_all(*mine));
  EXPECT_EQ(mine->members().size(), 1U);
  EXPECT_EQ(mine->used_bytes(), most);
}

INSTANTIATE_TEST_SUITE_P(all, node_budget_namespaces, ::testing::Values(proc_of::parent, proc_of::itself),
                         [](const auto& one) {
                           return one.param == proc_of::parent ? "proc_of_the_parent" : "proc_of_its_own";
                         });

}  // namespace pinfold::testing::node_budget_namespaces_test
