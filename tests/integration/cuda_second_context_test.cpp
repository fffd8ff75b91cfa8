// SPDX-License-Identifier: BSD-3-Clause
// Programs that have a context of the device beside the primary one, which pinfold uses: nothing of the one is taken
// for the other's, and what goes with the other is not missed.
#include "support/answer_times.hpp"
#include "support/fixtures/cuda_test.hpp"
#include "support/fixtures/second_context.hpp"
#include "support/host/test_pages.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/cuda_host.hpp>
#include <pinfold/registrars/cuda_memory.hpp>
#include <pinfold/registrars/null.hpp>

#include <cstring>

namespace pinfold::testing::cuda_second_context_test {
namespace {

using cuda::status;

class cuda_second_context : public cuda_peer_test {
 protected:
  static cuda::ipc_memory_handle handle_of(const cuda_shared& memory) {
    cuda::ipc_memory_handle handle{};
    std::memcpy(handle.reserved, memory.handle.memory.data(), sizeof handle.reserved);
    return handle;
  }
  /// Opens the handle in the second context, behind the library's back.
  status open_there(const cuda_shared& memory, cuda::device_pointer& at) const {
    return second.with(
        [&] { return gpu().calls().ipc_open_mem_handle(&at, handle_of(memory), cuda::ipc_lazy_enable_peer_access); });
  }
  cuda::device_pointer opened_there(const cuda_shared& memory) const {
    cuda::device_pointer at = 0;
    EXPECT_EQ(open_there(memory, at), status::success);
    return at;
  }
  void close_there(cuda::device_pointer at) const {
    second.demand([&] { return gpu().calls().ipc_close_mem_handle(at); });
  }
  /// Ends what is open in the second context with it.
  void destroy_with(std::uint64_t mappings) {
    second.destroy();
    expected_ends_ += mappings;
  }
  void TearDown() override {
    const auto now = gpu().counters();
    EXPECT_EQ(now.double_closes + now.wrong_closes, 0U);
    EXPECT_EQ(now.live_mappings, 0U);
    EXPECT_EQ(now.opens, now.closes + expected_ends_);
  }

  second_context second;

 private:
  std::uint64_t expected_ends_ = 0;
};

TEST_F(cuda_second_context, R6_what_another_context_has_open_is_in_use_conflict_until_it_is_closed) {
  const auto memory = peer.allocate(32 * kib, 1);
  const auto at = opened_there(memory);
  cuda_cache cache{cuda_ipc_importer()};
  expect_refused(cache, memory, errc::in_use_conflict, status::invalid_handle);
  EXPECT_EQ(cache.statistics().evicted, 0U);
  close_there(at);
  touch(cache, memory, 1);
}

TEST_F(cuda_second_context, R6_what_another_context_has_open_is_not_called_stale_where_the_exporter_does_not_answer) {
  const auto memory = peer.allocate(32 * kib, 1);
  const auto at = opened_there(memory);
  cuda_cache cache{cuda_ipc_importer()};
  const usual_answer_times usual;
  peer.process().stop();
  const auto refused = acquire(cache, memory);
  EXPECT_EQ(refused.error(), errc::timed_out) << describe(refused.error());
  peer.process().go_on();
  close_there(at);
}

TEST_F(cuda_second_context, R6_what_another_context_has_open_is_not_in_the_way_after_the_contexts_end) {
  const auto memory = peer.allocate(32 * kib, 1);
  static_cast<void>(opened_there(memory));
  cuda_cache cache{cuda_ipc_importer()};
  expect_refused(cache, memory, errc::in_use_conflict, status::invalid_handle);
  destroy_with(1);
  touch(cache, memory, 1);
}

TEST_F(cuda_second_context, freed_memory_is_stale_also_while_another_context_has_memory_of_the_exporter_open) {
  const auto memory = peer.allocate(32 * kib, 1);
  const auto gone = peer.allocate(32 * kib, 2);
  const auto at = opened_there(memory);
  peer.free(gone.address);
  cuda_cache cache{cuda_ipc_importer()};
  const auto refused = acquire(cache, gone);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  close_there(at);
}

TEST_F(cuda_second_context, leases_outlive_the_other_context) {
  const auto memory = peer.allocate(32 * kib, 1);
  cuda_cache cache{cuda_ipc_importer()};
  const auto lease = acquire(cache, memory);
  ASSERT_TRUE(lease) << describe(lease.error());
  second.destroy();
  EXPECT_TRUE(gpu().holds(lease->data(), memory.size(), 1));
  EXPECT_TRUE(acquire(cache, memory));
  EXPECT_EQ(cache.statistics().opens, 1U);
}

TEST_F(cuda_second_context, flush_lets_the_program_open_in_its_own_context) {
  const auto memory = peer.allocate(32 * kib, 1);
  cuda_cache cache{cuda_ipc_importer()};
  touch(cache, memory, 1);
  cuda::device_pointer at = 0;
  EXPECT_EQ(open_there(memory, at), status::invalid_handle) << "the cache keeps it open";
  EXPECT_TRUE(cache.flush());
  ASSERT_EQ(open_there(memory, at), status::success);
  close_there(at);
}

TEST_F(cuda_second_context, caches_work_on_threads_of_the_other_context_and_leave_it_current) {
  const auto memory = peer.allocate(32 * kib, 1);
  cuda_cache cache{cuda_ipc_importer()};
  second.demand([&] {
    touch(cache, memory, 1);
    cuda::context now = nullptr;
    EXPECT_EQ(gpu().calls().ctx_get_current(&now), status::success);
    EXPECT_EQ(now, second.get());
    return status::success;
  });
}

TEST_F(cuda_second_context, events_are_awaited_in_streams_of_the_other_context_but_not_recorded) {
  cuda_peer with_events{true};
  const auto memory = with_events.allocate(32 * kib, 1);
  auto exporter = cuda_ipc_exporter::create({.events = true});
  ASSERT_TRUE(exporter);
  cuda::device_pointer own = 0;
  gpu().demand([&] { return gpu().calls().mem_alloc(&own, 4096); });
  const auto shared = exporter->share(own);
  ASSERT_TRUE(shared) << describe(shared.error());
  cuda::stream stream = nullptr;
  second.demand([&] { return gpu().calls().stream_create(&stream, 0); });
  cuda_ipc_importer importer;
  EXPECT_TRUE(importer.wait(memory, stream));
  const auto refused = exporter->record(*shared, stream);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().native, static_cast<int>(status::invalid_handle));
  EXPECT_TRUE(exporter->record(*shared));
  second.demand([&] { return gpu().calls().stream_destroy(stream); });
  gpu().demand([&] { return gpu().calls().mem_free(own); });
}

TEST_F(cuda_second_context, exported_memory_that_goes_with_its_context_leaves_its_handle_to_no_other) {
  auto exporter = cuda_ipc_exporter::create();
  ASSERT_TRUE(exporter);
  cuda::device_pointer at = 0;
  second.demand([&] { return gpu().calls().mem_alloc(&at, 32 * kib); });
  const auto before = exporter->share(at);
  ASSERT_TRUE(before) << describe(before.error());
  second.destroy();
  EXPECT_FALSE(exporter->share(at));
  cuda::device_pointer again = 0;
  gpu().demand([&] { return gpu().calls().mem_alloc(&again, 32 * kib); });
  EXPECT_TRUE(real_gpu() || again == at);
  const auto after = exporter->share(again);
  ASSERT_TRUE(after) << describe(after.error());
  EXPECT_NE(after->handle.serial, before->handle.serial);
  gpu().demand([&] { return gpu().calls().mem_free(again); });
}

TEST_F(cuda_second_context, R20_memory_that_goes_with_its_context_is_never_a_hit) {
  using memory_cache = cache<cuda_memory<null_registrar>>;
  constexpr std::size_t size = 32 * kib;
  memory_cache cache{cuda_memory<null_registrar>(null_registrar())};
  cuda::device_pointer at = 0;
  second.demand([&] { return gpu().calls().mem_alloc(&at, size); });
  auto* const address = reinterpret_cast<void*>(at);
  EXPECT_TRUE(cache.acquire(address, size));
  EXPECT_TRUE(cache.acquire(address, size));
  EXPECT_EQ(cache.statistics().opens, 1U);
  second.destroy();
  EXPECT_FALSE(cache.find(address, size)) << "nothing is there";
  cuda::device_pointer again = 0;
  gpu().demand([&] { return gpu().calls().mem_alloc(&again, size); });
  EXPECT_TRUE(real_gpu() || again == at);
  EXPECT_TRUE(cache.acquire(reinterpret_cast<void*>(again), size));
  EXPECT_EQ(cache.statistics().opens, 2U);
  gpu().demand([&] { return gpu().calls().mem_free(again); });
}

class cuda_second_context_host : public cuda_second_context {
 protected:
  using host_cache = cache<cuda_host_registrar>;
  static constexpr std::size_t size = 4 * test_pages::page;

  void register_there(unsigned flags) {
    second.demand([&] { return gpu().calls().mem_host_register(memory.at(0), size, flags); });
  }
  auto acquire_host() { return host.acquire(memory.at(0), size); }
  static std::uint64_t registrations() { return gpu().counters().host_registrations; }

  test_pages memory{16};
  host_cache host{cuda_host_registrar(), {.monitor = monitor_choice::manual}};
};

TEST_F(cuda_second_context_host, portable_registration_is_used_as_it_is_until_its_context_ends) {
  register_there(cuda::host_register_portable | cuda::host_register_device_map);
  EXPECT_TRUE(acquire_host());
  EXPECT_EQ(host.statistics().entries_now, 0U) << "the program may end it at any time";
  second.destroy();
  EXPECT_EQ(registrations(), 0U);
  EXPECT_TRUE(acquire_host());
  EXPECT_EQ(host.statistics().entries_now, 1U);
  EXPECT_TRUE(real_gpu() || registrations() == 1);
}

TEST_F(cuda_second_context_host, registration_that_only_the_other_context_knows_is_in_use_conflict) {
  PINFOLD_EMULATION_ONLY();  // what real drivers say of it was not measured
  register_there(cuda::host_register_device_map);
  const auto refused = acquire_host();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::in_use_conflict) << describe(refused.error());
  second.destroy();
  EXPECT_TRUE(acquire_host());
}

TEST_F(cuda_second_context_host, registrations_outlive_the_other_context_and_serve_its_threads) {
  second.demand([&] { return acquire_host() ? status::success : status::unknown; });
  second.destroy();
  EXPECT_TRUE(acquire_host());
  EXPECT_EQ(host.statistics().opens, 1U);
}

}  // namespace
}  // namespace pinfold::testing::cuda_second_context_test
