// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/server.hpp"
#include "fd_passing/wire.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <unistd.h>

namespace pinfold::fd_passing::fd_server_start_test {
namespace {

struct lends_nothing : fd_provider {
  [[nodiscard]] result<void> lend(std::uint64_t /*serial*/, const std::function<void(int)>& /*use*/) noexcept override {
    return fail(errc::stale_handle, "there is no buffer");
  }
  [[nodiscard]] bool inherited() const noexcept override { return false; }
};

}  // namespace

// Once the name was seen, another user could take it.
TEST(fd_server_start, without_a_thread_keeps_the_name) {
  if (testing::sanitized) GTEST_SKIP() << "the sanitizer's own mappings need the address space";
  testing::run_in_child([] {
    const std::uint64_t exporter = (std::uint64_t{0x7e57} << 32U) + static_cast<std::uint64_t>(::getpid());
    const auto from = std::make_shared<lends_nothing>();
    file listener;
    {
      const testing::room_for_threads none(0);
      EXPECT_FALSE(server::start(exporter, from, listener));
    }
    EXPECT_TRUE(listener);
    const auto other = listen_at(exporter, socket_purpose::descriptors);
    EXPECT_TRUE(!other && other.error().native == EADDRINUSE);
    EXPECT_TRUE(server::start(exporter, from, listener));
    EXPECT_FALSE(listener);
  });
}

}  // namespace pinfold::fd_passing::fd_server_start_test
