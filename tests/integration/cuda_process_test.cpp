// SPDX-License-Identifier: BSD-3-Clause
// State that CUDA ties to a process or a thread: the driver itself, a device that is reset, the current context. The
// order of the tests matters: children have no driver once this process has one.
#include "support/fixtures/cuda_test.hpp"

#include <pinfold/cuda.hpp>
#include <pinfold/registrars/cuda_host.hpp>
#include <pinfold/registrars/cuda_memory.hpp>

#include <chrono>
#include <functional>
#include <sys/mman.h>
#include <thread>

namespace pinfold::testing::cuda_process_test {
namespace {

/// Runs the body in a forked child; returns 0 when none of its expectations failed.
int in_child(const std::function<void()>& body) {
  child_process child([&](line&) {
    body();
    std::fflush(nullptr);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  return child.reap();
}

/// Sets a variable of a child, which has one thread.
void set_variable(const char* name, const char* value) {
  ::setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
}

std::vector<std::byte>& some_pages() {
  static std::vector<std::byte> pages(64 * kib);
  return pages;
}
range whole_pages() {
  const auto first = (reinterpret_cast<std::uintptr_t>(some_pages().data()) + 4095) / 4096 * 4096;
  return {first, first + 8 * kib};
}

TEST(cuda_process, without_a_driver_every_call_is_unsupported_with_a_reason) {
  cuda_peer peer;
  const auto memory = peer.allocate(32 * kib, 1);
  EXPECT_EQ(in_child([&] {
              set_variable("PINFOLD_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
              cuda_cache cache{cuda_ipc_importer()};
              const auto refused = cache.acquire(any_peer, memory.handle, memory.address, 1);
              ASSERT_FALSE(refused);
              EXPECT_EQ(refused.error(), errc::unsupported);
              EXPECT_STREQ(refused.error().message, "cannot load the CUDA driver (PINFOLD_CUDA_LIBRARY)");
              EXPECT_FALSE(cuda_ipc_exporter::create());
              EXPECT_EQ(cuda_devices().error(), errc::unsupported);
              EXPECT_EQ(cuda_host_registrar().open(whole_pages(), local_access).error(), errc::unsupported);
              EXPECT_EQ(identify_cuda_memory(whole_pages()).error(), errc::unsupported);
              EXPECT_FALSE(is_cuda_memory({1, 0}, whole_pages()));
              EXPECT_NE(cuda_driver_text().find("/nonexistent/libcuda.so.1"), std::string::npos) << cuda_driver_text();
            }),
            0);
}

TEST(cuda_process, library_that_is_no_driver_is_refused_with_the_missing_function) {
  EXPECT_EQ(in_child([] {
              set_variable("PINFOLD_CUDA_LIBRARY", "libm.so.6");
              EXPECT_EQ(cuda_devices().error(), errc::unsupported);
              EXPECT_NE(cuda_driver_text().find("missing symbol cuInit"), std::string::npos) << cuda_driver_text();
            }),
            0);
}

TEST(cuda_process, a_driver_without_a_device_is_unsupported) {
  PINFOLD_EMULATION_ONLY();
  EXPECT_EQ(in_child([] {
              set_variable("EMULATED_CUDA_DEVICES", "0");
              const auto refused = cuda_devices();
              ASSERT_FALSE(refused);
              EXPECT_EQ(refused.error(), errc::unsupported);
              EXPECT_EQ(refused.error().native, static_cast<int>(cuda::status::no_device));
            }),
            0);
}

/// Runs in children, as a device that was reset is useless to later tests.
class cuda_reset : public ::testing::Test {
 protected:
  static int run(const std::function<void(cuda_cache&, const cuda_peer::memory&)>& body) {
    cuda_peer peer;
    return in_child([&] {
      const auto leased = peer.allocate(32 * kib, 1);
      cuda_cache cache{cuda_ipc_importer()};
      body(cache, leased);
    });
  }
};

TEST_F(cuda_reset, leases_can_be_released_after_a_reset_of_the_own_context) {
  EXPECT_EQ(run([](cuda_cache& cache, const cuda_peer::memory& memory) {
              auto lease = cache.acquire(any_peer, memory.handle, memory.address, 1);
              ASSERT_TRUE(lease) << describe(lease.error());
              ASSERT_EQ(gpu().calls().device_primary_ctx_reset(0), cuda::status::success);
              EXPECT_TRUE(lease->release());
              EXPECT_TRUE(cache.flush()) << "of a context that is gone nothing is left to close";
              EXPECT_EQ(cache.backend().held(), 0U);
              const auto refused = cache.acquire(any_peer, memory.handle, memory.address, 1);
              ASSERT_FALSE(refused);
              EXPECT_EQ(refused.error(), errc::driver_error) << describe(refused.error());
              EXPECT_EQ(gpu().counters().live_mappings, 0U);
              EXPECT_EQ(gpu().counters().wrong_closes + gpu().counters().double_closes, 0U);
            }),
            0);
}

/// Resets the device and uses it again, as the runtime does.
void reset_and_go_on() {
  cuda::context again = nullptr;
  ASSERT_EQ(gpu().calls().device_primary_ctx_reset(0), cuda::status::success);
  ASSERT_EQ(gpu().calls().device_primary_ctx_retain(&again, 0), cuda::status::success);
}

TEST_F(cuda_reset, entry_of_a_reset_context_conflicts_until_it_is_closed) {
  EXPECT_EQ(run([](cuda_cache& cache, const cuda_peer::memory& memory) {
              auto lease = cache.acquire(any_peer, memory.handle, memory.address, memory.size());
              ASSERT_TRUE(lease) << describe(lease.error());
              ASSERT_NO_FATAL_FAILURE(reset_and_go_on());
              cuda_cache other{cuda_ipc_importer()};
              const auto refused = other.acquire(any_peer, memory.handle, memory.address, 1);
              ASSERT_FALSE(refused) << "shares a mapping that is gone";
              EXPECT_EQ(refused.error(), errc::in_use_conflict) << describe(refused.error());
              EXPECT_TRUE(lease->release());
              EXPECT_TRUE(cache.flush());
              const auto fresh = other.acquire(any_peer, memory.handle, memory.address, memory.size());
              ASSERT_TRUE(fresh) << describe(fresh.error());
              EXPECT_TRUE(gpu().holds(fresh->data(), memory.size(), 1));
              EXPECT_EQ(gpu().counters().wrong_closes + gpu().counters().double_closes, 0U);
            }),
            0);
}

TEST_F(cuda_reset, late_close_of_pool_memory_frees_no_other_allocation) {
  cuda_peer peer;
  EXPECT_EQ(in_child([&] {
              const auto memory = peer.allocate_pooled(32 * kib, 3);
              cuda_cache cache{cuda_ipc_importer()};
              auto lease = cache.acquire(any_peer, memory.handle, memory.address, memory.size());
              ASSERT_TRUE(lease) << describe(lease.error());
              ASSERT_NO_FATAL_FAILURE(reset_and_go_on());
              std::vector<cuda::device_pointer> ours(64);
              for (auto& one : ours) gpu().demand([&] { return gpu().calls().mem_alloc(&one, 32 * kib); });
              EXPECT_TRUE(lease->release());
              EXPECT_TRUE(cache.flush());
              for (const auto one : ours) gpu().demand([&] { return gpu().calls().mem_free(one); });
              const auto fresh = cache.acquire(any_peer, memory.handle, memory.address, memory.size());
              ASSERT_TRUE(fresh) << describe(fresh.error());
              EXPECT_TRUE(gpu().holds(fresh->data(), memory.size(), 3));
            }),
            0);
}

TEST_F(cuda_reset, host_memory_can_be_registered_again_after_a_reset) {
  EXPECT_EQ(run([](cuda_cache&, const cuda_peer::memory&) {
              cuda_host_registrar registrar;
              const auto held = registrar.open(whole_pages(), local_access);
              ASSERT_TRUE(held) << describe(held.error());
              ASSERT_NO_FATAL_FAILURE(reset_and_go_on());
              EXPECT_EQ(registrar.open(whole_pages(), local_access).error(), errc::already_mapped);
              EXPECT_TRUE(registrar.close(*held));
              const auto fresh = registrar.open(whole_pages(), local_access);
              ASSERT_TRUE(fresh) << describe(fresh.error());
              EXPECT_TRUE(registrar.close(*fresh));
            }),
            0);
}

TEST_F(cuda_reset, exporters_and_registrars_of_a_reset_context_are_refused) {
  EXPECT_EQ(run([](cuda_cache&, const cuda_peer::memory&) {
              cuda_host_registrar registrar;
              const auto held = registrar.open(whole_pages(), local_access);
              ASSERT_TRUE(held) << describe(held.error());
              auto exporter = cuda_ipc_exporter::create({.events = true});
              cuda::device_pointer own = 0;
              gpu().demand([&] { return gpu().calls().mem_alloc(&own, 4096); });
              const auto shared = exporter->share(own);
              ASSERT_TRUE(shared) << describe(shared.error());
              ASSERT_EQ(gpu().calls().device_primary_ctx_reset(0), cuda::status::success);
              EXPECT_TRUE(registrar.close(*held));
              EXPECT_FALSE(registrar.open(whole_pages(), local_access));
              EXPECT_FALSE(exporter->share(own));
              EXPECT_FALSE(exporter->record(*shared));
            }),
            0);
}

class cuda_contexts : public cuda_peer_test {
 protected:
  /// Returns this thread's current context.
  static cuda::context current() {
    cuda::context now = nullptr;
    EXPECT_EQ(gpu().calls().ctx_get_current(&now), cuda::status::success);
    return now;
  }

  /// Makes one call of every kind that calls the driver, successful and not.
  void use_everything() {
    cuda_ipc_importer importer;
    const auto memory = peer.allocate(32 * kib, 1);
    const auto mapped = peer.map_segments(2, segment, 2);
    const auto pooled = peer.allocate_pooled(32 * kib, 3);
    for (const auto& one : {memory, mapped, pooled}) {
      const auto made = importer.open(any_peer, one.handle);
      ASSERT_TRUE(made) << describe(made.error());
      EXPECT_TRUE(importer.wait(one));
      EXPECT_TRUE(importer.close(made->registration));
    }
    for (const auto& one : {memory, mapped, pooled}) {
      peer.free(one.address);
      EXPECT_FALSE(importer.open(any_peer, one.handle));
    }
    static_cast<void>(identify_cuda_memory(whole_pages()));
    static_cast<void>(cuda_devices());
    use_registrar();
    use_exporter();
  }

  static void use_registrar() {
    cuda_host_registrar registrar;
    const auto held = registrar.open(whole_pages(), local_access);
    ASSERT_TRUE(held) << describe(held.error());
    EXPECT_FALSE(registrar.open({whole_pages().begin + 4096, whole_pages().end + 4096}, local_access));
    EXPECT_TRUE(registrar.close(*held));
  }

  static void use_exporter() {
    auto exporter = cuda_ipc_exporter::create({.events = true});
    ASSERT_TRUE(exporter);
    cuda::device_pointer own = 0;
    gpu().demand([&] { return gpu().calls().mem_alloc(&own, 4096); });
    const auto shared = exporter->share(own);
    ASSERT_TRUE(shared) << describe(shared.error());
    EXPECT_TRUE(exporter->record(*shared));
    const auto refused = cuda_ipc_importer().open(any_peer, shared->handle);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), errc::unsupported) << "it is memory of this very process";
    gpu().demand([&] { return gpu().calls().mem_free(own); });
  }
};

TEST_F(cuda_contexts, calls_without_a_current_context_leave_none_current) {
  ASSERT_EQ(gpu().calls().ctx_set_current(nullptr), cuda::status::success);
  use_everything();
  EXPECT_EQ(current(), nullptr);
}

TEST_F(cuda_contexts, calls_leave_the_callers_context_current) {
  cuda::context mine = nullptr;
  ASSERT_EQ(gpu().calls().device_primary_ctx_retain(&mine, 0), cuda::status::success);
  ASSERT_EQ(gpu().calls().ctx_set_current(mine), cuda::status::success);
  use_everything();
  EXPECT_EQ(current(), mine);
  ASSERT_EQ(gpu().calls().ctx_set_current(nullptr), cuda::status::success);
  EXPECT_EQ(current(), nullptr) << "nothing was left below it";
  EXPECT_EQ(gpu().calls().device_primary_ctx_release(0), cuda::status::success);
}

TEST_F(cuda_contexts, R37_fork_child_is_refused_and_does_not_affect_the_parent) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.allocate(32 * kib, 1);
  auto lease = acquire(cache, memory);
  ASSERT_TRUE(lease);
  auto exporter = cuda_ipc_exporter::create();
  ASSERT_TRUE(exporter);
  EXPECT_EQ(in_child([&] {
              cuda_ipc_importer& inherited = cache.backend();
              EXPECT_EQ(inherited.open(any_peer, memory.handle).error(), errc::unsupported);
              EXPECT_FALSE(inherited.close(lease->registration()));
              EXPECT_EQ(exporter->share(memory.address).error(), errc::unsupported);
              EXPECT_EQ(cuda_ipc_importer().open(any_peer, memory.handle).error(), errc::unsupported);
              auto moved = std::move(inherited);  // and the moved object ends here
            }),
            0);
  EXPECT_TRUE(gpu().holds(lease->data(), 32 * kib, 1));
  EXPECT_TRUE(lease->release());
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(gpu().counters().closes, gpu().counters().opens);
}

TEST_F(cuda_contexts, R37_a_child_forked_while_a_context_is_made_does_not_wait) {
  PINFOLD_EMULATION_ONLY();
  cuda_ipc_importer importer;
  const auto memory = peer.allocate(32 * kib, 1);
  emulation().delay("cuDevicePrimaryCtxRetain", 500'000);
  std::jthread first([&] { EXPECT_TRUE(importer.open(any_peer, memory.handle)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(in_child([&] {
              ::alarm(100);
              EXPECT_EQ(importer.open(any_peer, memory.handle).error(), errc::unsupported);
              EXPECT_EQ(importer.held(), 0U);
              auto moved = std::move(importer);  // and the moved object ends here
            }),
            0);
}

}  // namespace
}  // namespace pinfold::testing::cuda_process_test
