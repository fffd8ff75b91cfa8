// SPDX-License-Identifier: BSD-3-Clause
// The device is removed while leases are out. Needs root and a disposable machine: the test makes a device of its own.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <thread>

namespace pinfold::testing::verbs_removed_test {
namespace {

constexpr std::size_t bytes = 65536;

void run(const char* command) { done(std::system(command), command); }

struct removable_device {
  removable_device() {
    run("ip link add dum9 type dummy && ip addr add 10.99.9.1/24 dev dum9 && ip link set dum9 up");
    run("rdma link add rxe9 type rxe netdev dum9");
  }
  removable_device(const removable_device&) = delete;
  removable_device& operator=(const removable_device&) = delete;
  ~removable_device() { static_cast<void>(std::system("ip link delete dum9")); }
};

TEST(verbs_removed, device_removed_under_leases_gives_errors_and_a_clean_close) {
  const auto pinned = counted_by_kernel("VmPin");
  const removable_device there;
  const watchdog timeout([] { std::cerr << "the device's removal hangs\n"; });
  std::optional<rdma_device> device("rxe9");
  auto* const memory = static_cast<std::byte*>(attacks::elsewhere(2 * bytes));
  std::jthread removal;
  std::uint64_t failed_closes = 0;
  {
    cache cache(device->registrar(), {.monitor = monitor_choice::manual});
    auto held = cache.acquire(memory, bytes);
    ASSERT_TRUE(held) << describe(held.error());
    removal = std::jthread([] { run("rdma link delete rxe9"); });
    std::this_thread::sleep_for(std::chrono::seconds(1));
    auto next = cache.acquire(memory + bytes, bytes);
    std::cout << "acquire: " << (next ? "success" : describe(next.error())) << '\n';
    if (!next) {
      EXPECT_EQ(next.error().code, errc::driver_error);
      EXPECT_NE(next.error().native, 0);
    }
    EXPECT_TRUE(held->release());
    EXPECT_TRUE(!next || next->release());
    EXPECT_TRUE(cache.flush());
    EXPECT_EQ(cache.statistics().open, 0U);
    failed_closes = cache.statistics().failed_closes;
  }
  EXPECT_EQ(failed_closes, 0U);
  device.reset();
  removal.join();
  EXPECT_EQ(counted_by_kernel("VmPin"), pinned);
  ::munmap(memory, 2 * bytes);
}

}  // namespace
}  // namespace pinfold::testing::verbs_removed_test
