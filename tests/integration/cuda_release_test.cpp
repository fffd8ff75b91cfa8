// SPDX-License-Identifier: BSD-3-Clause
// The release protocol over GPU memory that belongs to the application (R66). Both sides are children, which were
// forked before any of them had a driver.
#include "fd_passing/wire.hpp"
#include "os/file.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/fixtures/cuda_here.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing::cuda_release_test {
namespace {

using namespace std::chrono_literals;
using cuda_release_cache = import_cache<releasing_importer<cuda_ipc_importer>>;

constexpr std::size_t bytes = 1 << 21;
constexpr int without_limit = -1;
constexpr int ample = 60'000;  // ms: for what another process does, on a busy machine

struct export_order {
  enum class what : int {
    allocate,
    retire,
    wait,
    announce,
    announce_in_free,
    ask_only,
    share_twice,
    free
  } verb = what::allocate;
  std::uint32_t seed = 0;
  int milliseconds = 0;
  int free_status = 0;  ///< what the driver shall say to the free; 0: free
};
struct export_answer {
  bool done = false;
  error failure{};
  cuda_shared shared{};
  retire_state state{};
  std::size_t holders = 0;
  bool free_failed = false;
  std::size_t limbo = 0;
};

class exporting {
 public:
  export_answer obey(const export_order& order) {
    switch (order.verb) {
      case export_order::what::allocate: return allocate(order.seed);
      case export_order::what::retire: return retire(order);
      case export_order::what::wait: return waited(std::chrono::milliseconds(order.milliseconds));
      case export_order::what::announce: return announce(at_, order.milliseconds);
      case export_order::what::announce_in_free: return announce_in_free(order.milliseconds);
      case export_order::what::ask_only: return ask_only(order.milliseconds);
      case export_order::what::share_twice: return share_twice();
      case export_order::what::free: return free();
    }
    return {};
  }

 private:
  export_answer allocate(std::uint32_t seed) {
    gpu().demand([&] { return gpu().calls().mem_alloc(&at_, bytes); });
    gpu().write(at_, bytes, seed);
    export_answer said;
    const auto shared = exporter_.share(at_);
    said.done = shared.has_value();
    if (shared) said.shared = *shared;
    if (!shared) said.failure = shared.error();
    return said;
  }

  export_answer retire(const export_order& order) {
    const auto free = [at = at_, wanted = order.free_status]() -> result<void> {
      if (wanted != 0) return tl::unexpected(error{errc::driver_error, native_kind::cuda, wanted, "cannot free"});
      gpu().demand([&] { return gpu().calls().mem_free(at); });
      return {};
    };
    auto begun =
        exporter_.begin_retire(reinterpret_cast<const void*>(at_), std::chrono::milliseconds(order.milliseconds), free);
    export_answer said;
    if (!begun) said.failure = begun.error();
    if (!begun) return said;
    ticket_ = std::move(*begun);
    return waited(std::chrono::milliseconds(order.milliseconds));
  }

  /// Announces, and frees.
  static export_answer announce(cuda::device_pointer at, int milliseconds) {
    const auto timeout =
        milliseconds == without_limit ? std::chrono::milliseconds::max() : std::chrono::milliseconds(milliseconds);
    const auto holders = cuda_ipc_exporter::announce_free(at, 1, timeout);
    gpu().demand([&] { return gpu().calls().mem_free(at); });
    return {.done = holders.has_value(), .holders = holders.value_or(0)};
  }

  /// Announces, without a descriptor to spare, and does not free.
  [[nodiscard]] export_answer ask_only(int milliseconds) const {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 128;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<os::file> all;
    while (auto one = os::file(::dup(STDIN_FILENO))) all.push_back(std::move(one));
    const auto holders = cuda_ipc_exporter::announce_free(at_, 1, std::chrono::milliseconds(milliseconds));
    return {.done = holders.has_value(), .holders = holders.value_or(0)};
  }

  /// Shares the memory through another exporter, too.
  export_answer share_twice() {
    const auto shared = another_.share(at_);
    return shared ? export_answer{.done = true, .shared = *shared} : export_answer{.failure = shared.error()};
  }

  /// Frees, without an announcement.
  [[nodiscard]] export_answer free() const {
    gpu().demand([&] { return gpu().calls().mem_free(at_); });
    return {.done = true};
  }

  /// Retires other memory, whose free announces this.
  export_answer announce_in_free(int milliseconds) {
    export_answer said;
    cuda::device_pointer other = 0;
    gpu().demand([&] { return gpu().calls().mem_alloc(&other, bytes); });
    EXPECT_TRUE(exporter_.share(other));
    const auto free = [&]() -> result<void> {
      said = announce(at_, milliseconds);
      gpu().demand([&] { return gpu().calls().mem_free(other); });
      return {};
    };
    said.done =
        exporter_.retire(reinterpret_cast<const void*>(other), std::chrono::milliseconds(ample), free).has_value();
    return said;
  }

  export_answer waited(std::chrono::milliseconds time) {
    const auto report = ticket_.wait(time).value();
    export_answer said{.done = true, .failure = report.failure};
    said.state = report.state;
    said.holders = report.holders.size();
    said.free_failed = report.free_failed;
    said.limbo = exporter_.retirements().limbo_bytes;
    return said;
  }

  cuda_ipc_exporter exporter_ = cuda_ipc_exporter::create({.release = true}).value();
  cuda_ipc_exporter another_ = cuda_ipc_exporter::create({.release = true}).value();
  cuda::device_pointer at_ = 0;
  retirement ticket_;
};

int export_memory(line& parent) {
  static_cast<void>(gpu());
  exporting all;
  while (const auto order = parent.receive<export_order>())
    if (!parent.send(all.obey(*order))) return 3;
  return 0;
}

struct import_order {
  enum class what : int { acquire, find, release } verb = what::acquire;
  cuda_shared shared{};
  std::uint32_t seed = 0;
  bool keep = false;
};
struct import_answer {
  bool right = false;
  error failure{};
};

int import_memory(line& parent) {
  static_cast<void>(gpu());
  auto listener = release_listener::create().value();
  cuda_release_cache cache(releasing_importer<cuda_ipc_importer>(cuda_ipc_importer(), listener));
  const auto attached = listener.attach(cache).value();
  std::optional<cuda_release_cache::lease> kept;
  while (const auto order = parent.receive<import_order>()) {
    import_answer said;
    if (order->verb == import_order::what::release) {
      said.right = kept && gpu().holds(kept->data(), bytes, order->seed);
      kept.reset();
    } else if (order->verb == import_order::what::find) {
      const auto& handle = order->shared.handle;
      said.right = cache.find({1}, handle, handle.base, bytes).has_value();
    } else {
      auto got = cache.acquire({1}, order->shared.handle, order->shared.handle.base, bytes);
      if (!got) said.failure = got.error();
      said.right = got && gpu().holds(got->data(), bytes, order->seed);
      if (got && order->keep) kept = std::move(*got);
    }
    if (!parent.send(said)) return 3;
  }
  return 0;
}

class cuda_release : public ::testing::Test {
 protected:
  export_answer ask(const export_order& order) { return exporter.ask<export_answer>(order); }
  import_answer ask(const import_order& order) { return importer.ask<import_answer>(order); }

  child_process exporter{export_memory};
  child_process importer{import_memory};
};

/// Waits for at most a minute.
template <class Condition>
bool soon(Condition holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ample);
  while (!holds() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
  return holds();
}

using give = export_order::what;
using take = import_order::what;

}  // namespace

// MPICH #7947: memory is freed and allocated again at its address while a peer has it cached.
TEST_F(cuda_release, R66_an_idle_importer_lets_go_before_the_address_is_reused) {
  const auto old = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, old, 7}).right);
  EXPECT_EQ(ask(export_order{give::retire, 0, ample}).state, retire_state::freed);
  const auto fresh = ask(export_order{give::allocate, 8}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, fresh, 8}).right);
  EXPECT_EQ(ask(import_order{take::acquire, old, 7}).failure, errc::stale_handle);
}

TEST_F(cuda_release, R66_leased_memory_stays_in_limbo_and_keeps_its_bytes) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7, true}).right);
  const auto late = ask(export_order{give::retire, 0, 50});
  EXPECT_EQ(late.state, retire_state::limbo);
  EXPECT_EQ(late.limbo, bytes);
  EXPECT_EQ(ask(export_order{give::retire, 0, 50}).failure, errc::invalid_argument);  // it is being retired
  EXPECT_TRUE(ask(import_order{take::release, {}, 7}).right);
  const auto freed = ask(export_order{give::wait, 0, ample});
  EXPECT_EQ(freed.state, retire_state::freed);
  EXPECT_EQ(freed.limbo, 0U);
}

TEST_F(cuda_release, R66_a_killed_importer_keeps_nothing) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7, true}).right);
  importer.kill();
  EXPECT_EQ(ask(export_order{give::retire, 0, ample}).state, retire_state::freed);
}

TEST_F(cuda_release, R66_the_error_of_the_free_reaches_the_caller) {
  static_cast<void>(ask(export_order{give::allocate, 7}));
  const auto said = ask(export_order{give::retire, 0, ample, 999});
  EXPECT_TRUE(said.free_failed);
  EXPECT_EQ(said.failure.native, 999);
  EXPECT_EQ(said.failure.kind, native_kind::cuda);
}

TEST_F(cuda_release, R66_an_announced_free_ends_hits_before_the_memory_goes) {
  const auto old = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, old, 7}).right);
  const auto said = ask(export_order{give::announce, 0, ample});
  EXPECT_TRUE(said.done);
  EXPECT_EQ(said.holders, 0U);
  EXPECT_FALSE(ask(import_order{take::find, old}).right);
  const auto fresh = ask(export_order{give::allocate, 8}).shared;
  EXPECT_EQ(fresh.address, old.address) << "the memory was not given back";
  EXPECT_TRUE(ask(import_order{take::acquire, fresh, 8}).right);
  EXPECT_EQ(ask(import_order{take::acquire, old, 7}).failure, errc::stale_handle);
}

TEST_F(cuda_release, R66_an_announced_free_waits_for_no_lease) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7, true}).right);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(export_order{give::announce, 0, 60'000}).holders, 1U);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
  EXPECT_FALSE(ask(import_order{take::find, shared}).right);
  static_cast<void>(ask(import_order{take::release, {}, 7}));
  EXPECT_EQ(ask(import_order{take::acquire, shared, 7}).failure, errc::stale_handle);
}

// The first call also announces without descriptors, which nothing has used before.
TEST_F(cuda_release, R66_a_free_that_is_announced_again_counts_the_leases_until_they_end) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7, true}).right);
  for (int i = 0; i < 3; ++i) {
    const auto said = ask(export_order{give::ask_only, 0, ample});
    EXPECT_TRUE(said.done) << i;
    EXPECT_EQ(said.holders, 1U) << i;
  }
  EXPECT_TRUE(ask(import_order{take::release, {}, 7}).right);
  EXPECT_TRUE(soon([&] { return ask(export_order{give::ask_only, 0, ample}).holders == 0; }));
}

TEST_F(cuda_release, R66_leases_on_freed_memory_do_not_count_for_what_lies_there_next) {
  const auto old = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, old, 7, true}).right);
  EXPECT_EQ(ask(export_order{give::announce, 0, ample}).holders, 1U);
  const auto fresh = ask(export_order{give::allocate, 8}).shared;
  ASSERT_EQ(fresh.address, old.address);
  EXPECT_EQ(ask(export_order{give::announce, 0, ample}).holders, 0U);
}

TEST_F(cuda_release, R66_memory_of_two_exporters_is_retired_by_neither) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  const auto again = ask(export_order{give::share_twice});
  ASSERT_TRUE(again.done);
  EXPECT_TRUE(ask(import_order{take::acquire, again.shared, 7}).right);
  EXPECT_EQ(ask(export_order{give::retire, 0, ample}).failure, errc::unsupported);
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7}).right);
  EXPECT_EQ(ask(export_order{give::announce, 0, ample}).holders, 0U);
  EXPECT_FALSE(ask(import_order{take::find, again.shared}).right);
}

TEST_F(cuda_release, R66_freed_memory_of_another_exporter_forbids_no_retirement) {
  const auto old = ask(export_order{give::allocate, 7}).shared;
  ASSERT_TRUE(ask(export_order{give::share_twice}).done);
  EXPECT_TRUE(ask(export_order{give::free}).done);
  const auto fresh = ask(export_order{give::allocate, 8}).shared;
  ASSERT_EQ(fresh.address, old.address);
  EXPECT_TRUE(ask(export_order{give::retire, 0, ample}).done);
}

TEST_F(cuda_release, R66_an_announced_free_waits_for_a_stopped_importer_until_its_timeout) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7}).right);
  importer.stop();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(export_order{give::announce, 0, 50}).holders, 1U);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 50ms);
  importer.go_on();
  EXPECT_TRUE(soon([&] { return !ask(import_order{take::find, shared}).right; }));
}

TEST_F(cuda_release, R66_an_announced_free_without_a_limit_waits_for_a_stopped_importer) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7}).right);
  importer.stop();
  const std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    importer.go_on();
  });
  EXPECT_EQ(ask(export_order{give::announce, 0, without_limit}).holders, 0U);
}

TEST_F(cuda_release, R66_a_free_that_is_announced_in_another_is_answered) {
  const auto shared = ask(export_order{give::allocate, 7}).shared;
  EXPECT_TRUE(ask(import_order{take::acquire, shared, 7}).right);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(ask(export_order{give::announce_in_free, 0, 60'000}).done);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
  EXPECT_FALSE(ask(import_order{take::find, shared}).right);
}

TEST(cuda_release_names, are_the_exporters_as_soon_as_one_is_public) {
  child_process exporting([](line&) {
    static_cast<void>(gpu());
    const auto exporter = cuda_ipc_exporter::create({.release = true}).value();
    const auto taken = fd_passing::listen_at(exporter.window(0, 0).exporter, fd_passing::socket_purpose::descriptors);
    return !taken && taken.error().native == EADDRINUSE ? 0 : 1;
  });
  EXPECT_EQ(exporting.reap(), 0);
}

}  // namespace pinfold::testing::cuda_release_test
