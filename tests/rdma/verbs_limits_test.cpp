// SPDX-License-Identifier: BSD-3-Clause
// An ordinary user with a limit of 8 MiB of locked memory.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/numa.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::verbs_limits_test {
namespace {

constexpr std::size_t limit_bytes = std::size_t{8} << 20U, piece = 65536;
constexpr uid_t unprivileged = 65534;

// Runs `what` in a child that has become that user. Returns its status, or a negative number when a signal killed it.
int as_ordinary_user(const std::function<int()>& what) {
  const auto child = ::fork();
  if (child == 0) {
    const rlimit limit{limit_bytes, limit_bytes};
    int status = 99;
    try {
      if (::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && ::setresgid(unprivileged, unprivileged, unprivileged) == 0 &&
          ::setresuid(unprivileged, unprivileged, unprivileged) == 0)
        status = what();
    } catch (const std::exception& failed) {
      std::fprintf(stderr, "%s\n", failed.what());
    }
    ::_exit(status);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int move_64_MiB() {
  const rdma_device device;
  rdma_pair pair(device);
  std::vector<std::byte> got(piece), sent(std::size_t{64} << 20U);
  for (std::size_t at = 0; at < sent.size(); ++at) sent[at] = static_cast<std::byte>(at / 509 + at);
  const rdma_sink sink(device, got.data(), got.size());
  cache cache(device.registrar(), {.monitor = monitor_choice::manual});
  for (std::size_t at = 0; at < sent.size(); at += piece) {
    auto part = cache.acquire(sent.data() + at, piece);
    if (!part) return std::fprintf(stderr, "%s\n", describe(part.error()).c_str()), 1;
    if (pair.write(sent.data() + at, piece, part->registration().lkey, {got.data(), sink.rkey()}) != IBV_WC_SUCCESS)
      return 2;
    if (std::memcmp(got.data(), sent.data() + at, piece) != 0) return 3;
  }
  const auto now = cache.statistics();
  return now.opens == sent.size() / piece && now.evicted > 0 ? 0 : 4;
}

TEST(verbs_limits, R28_ordinary_user_with_8_MiB_moves_64_MiB_by_eviction) {
  EXPECT_EQ(as_ordinary_user(move_64_MiB), 0) << "1: no lease, 2: not sent, 3: wrong bytes, 4: nothing was evicted";
}

int is_told_which_limit() {
  const rdma_device device;
  auto registrar = device.registrar();
  const auto memory = reinterpret_cast<std::uintptr_t>(attacks::elsewhere(2 * limit_bytes));
  const auto refused = registrar.open({memory, memory + 2 * limit_bytes}, local_access);
  if (refused || refused.error().code != errc::out_of_resources || refused.error().native != ENOMEM) return 1;
  std::printf("%s\n", describe(refused.error()).c_str());
  return std::strstr(refused.error().message, "RLIMIT_MEMLOCK") != nullptr ? 0 : 2;
}

// Soft-RoCE belongs to no bus.
TEST(verbs_limits, a_software_device_has_no_node) {
  const auto node = numa_node_of_rdma("rxe0");
  ASSERT_TRUE(node) << describe(node.error());
  EXPECT_EQ(*node, unknown_node);
}

TEST(verbs_limits, R28_the_message_names_the_locked_memory_limit) {
  EXPECT_EQ(as_ordinary_user(is_told_which_limit), 0);
}

}  // namespace
}  // namespace pinfold::testing::verbs_limits_test
