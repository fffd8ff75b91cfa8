// SPDX-License-Identifier: BSD-3-Clause
// The nodes of a host from folders like the kernel's, the node of memory, and moving a thread between nodes.
#include "os/numa.hpp"
#include "support/host/test_pages.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing::numa_test {
namespace {

namespace fs = std::filesystem;
using os::cpu_numbers;
using os::near_memory;
using os::numa_nodes;

// A folder like /sys/devices/system/node.
class fake_nodes {
 public:
  fake_nodes(const std::string& online, const std::vector<std::pair<int, std::string>>& cpus) {
    write(root_ / "online", online);
    for (const auto& [node, list] : cpus) write(root_ / ("node" + std::to_string(node)) / "cpulist", list);
  }
  ~fake_nodes() { fs::remove_all(root_); }
  fake_nodes(const fake_nodes&) = delete;
  fake_nodes& operator=(const fake_nodes&) = delete;

  [[nodiscard]] std::string folder() const { return root_.string(); }

 private:
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  fs::path root_ = fs::path(::testing::TempDir()) / ("pinfold-nodes-" + std::to_string(::getpid()));
};

cpu_numbers cpus_here() {
  cpu_numbers cpus;
  EXPECT_EQ(::sched_getaffinity(0, sizeof cpus, reinterpret_cast<cpu_set_t*>(&cpus)), 0);
  return cpus;
}

std::string list_of(const cpu_numbers& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size(); ++i)
    if (cpus.test(i)) text += (text.empty() ? "" : ",") + std::to_string(i);
  return text;
}

TEST(numa, lists_of_the_kernel_are_parsed) {
  EXPECT_EQ(list_of(*os::parse_cpus("0-3,8,10-11")), "0,1,2,3,8,10,11");
  EXPECT_EQ(list_of(*os::parse_cpus("")), "");
  EXPECT_EQ(list_of(*os::parse_cpus("8191")), "8191");
  for (const char* wrong :
       {"a", "1-", "-1", "3-1", "1,", ",1", "1,,2", "8192", "0-9999", "1 2", "99999999999999999999"})
    EXPECT_FALSE(os::parse_cpus(wrong)) << wrong;
}

TEST(numa, a_host_has_several_nodes_only_if_two_have_cpus) {
  EXPECT_TRUE(numa_nodes(fake_nodes("0-1", {{0, "0-3"}, {1, "4-7"}}).folder()).several());
  EXPECT_TRUE(numa_nodes(fake_nodes("0,3", {{0, "0"}, {3, "1"}}).folder()).several());
  EXPECT_FALSE(numa_nodes(fake_nodes("0", {{0, "0-3"}}).folder()).several());
  EXPECT_FALSE(numa_nodes(fake_nodes("0-1", {{0, "0-3"}, {1, ""}}).folder()).several()) << "memory without CPUs";
  EXPECT_FALSE(numa_nodes(fake_nodes("0-1", {{0, "0-3"}}).folder()).several()) << "unreadable";
  EXPECT_FALSE(numa_nodes(fake_nodes("nonsense", {}).folder()).several());
  EXPECT_FALSE(numa_nodes("/nonexistent").several());
}

TEST(numa, cpus_are_found_by_node) {
  const fake_nodes host("0,2", {{0, "0-1"}, {2, "5"}});
  const numa_nodes nodes(host.folder());
  EXPECT_EQ(list_of(nodes.cpus_of(0)), "0,1");
  EXPECT_EQ(list_of(nodes.cpus_of(2)), "5");
  for (const std::size_t none : {1U, 3U, 100'000U}) EXPECT_TRUE(nodes.cpus_of(none).none());
}

TEST(numa, the_node_of_memory_is_that_of_its_present_pages) {
  const test_pages memory(9);
  EXPECT_FALSE(os::node_of(memory.pages(0, 9))) << "no page is present, and none is bound";
  unsigned char present = 0;
  ASSERT_EQ(::mincore(memory.at(0), test_pages::page, &present), 0);
  EXPECT_EQ(present & 1U, 0U) << "the question made the page present";
  std::memset(memory.at(8), 1, 1);
  const auto node = os::node_of(memory.pages(0, 9));
  if (!node) GTEST_SKIP() << "the kernel does not tell the node of a page here";
  EXPECT_LT(*node, 1024U);
}

TEST(numa, a_thread_moves_to_a_node_and_back_to_its_own_cpus) {
  const auto all = cpus_here();
  if (all.count() < 2) GTEST_SKIP() << "one CPU";
  auto rest = all;
  const auto first = all._Find_first();
  rest.reset(first);
  const fake_nodes host("0-2", {{0, std::to_string(first)}, {1, list_of(rest)}, {2, "8191"}});
  const numa_nodes nodes(host.folder());
  std::jthread([&] {
    near_memory here(nodes);
    here.move_to_node(0);
    EXPECT_EQ(list_of(cpus_here()), std::to_string(first));
    here.move_to_node(1);
    EXPECT_EQ(cpus_here(), rest);
    here.move_to_node(2);
    EXPECT_EQ(cpus_here(), all) << "the node has no CPU that the thread may use";
    here.move_to_node(0);
    here.move_to_node({});
    EXPECT_EQ(cpus_here(), all);
  }).join();
}

TEST(numa, a_host_with_one_node_leaves_threads_alone) {
  const auto all = cpus_here();
  const fake_nodes host("0", {{0, "0"}});
  const numa_nodes nodes(host.folder());
  near_memory here(nodes);
  here.move_to_node(0);
  const test_pages memory(1);
  here.move_to(memory.pages(0, 1));
  EXPECT_EQ(cpus_here(), all);
}

}  // namespace
}  // namespace pinfold::testing::numa_test
