// SPDX-License-Identifier: BSD-3-Clause
// Every driver call of a long scenario fails once, in every way: nothing leaks, nothing is closed twice or without
// having been opened, the counters add up, and the next call works (R7, R10, R41, R43).
#include "support/fixtures/cuda_test.hpp"
#include "support/host/settings.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pinfold::testing::cuda_fault_injection_test {
namespace {

using cuda::status;

/// The driver calls of an importer, and the failures that the test injects.
constexpr std::array calls{"cuIpcOpenMemHandle",
                           "cuIpcCloseMemHandle",
                           "cuCtxPushCurrent",
                           "cuCtxPopCurrent",
                           "cuMemAddressReserve",
                           "cuMemAddressFree",
                           "cuMemImportFromShareableHandle",
                           "cuMemMap",
                           "cuMemUnmap",
                           "cuMemSetAccess",
                           "cuMemRelease",
                           "cuMemPoolImportFromShareableHandle",
                           "cuMemPoolSetAccess",
                           "cuMemPoolImportPointer",
                           "cuMemFree",
                           "cuDevicePrimaryCtxRetain"};
constexpr std::array faults{status::invalid_value, status::out_of_memory, status::already_mapped, status::launch_failed,
                            status::not_permitted};

class cuda_faults : public cuda_peer_test, public ::testing::WithParamInterface<close_policy> {
 public:
  static std::string name(const ::testing::TestParamInfo<close_policy>& info) {
    return info.param == close_policy::immediate ? "inline" : "deferred";
  }

 protected:
  void SetUp() override {
    PINFOLD_EMULATION_ONLY();
    cuda_peer_test::SetUp();
  }
  void TearDown() override {
    if (!real_gpu()) cuda_peer_test::TearDown();
  }

  void use(cuda_cache& cache, const cuda_shared& memory, std::uint32_t seed) {
    auto lease = acquire(cache, memory);
    if (!lease) return;  // the fault struck this call, or an earlier one whose effect is in the way
    EXPECT_TRUE(holds(*lease, memory, seed));
  }
  /// Compares the first and the last bytes; other tests compare all. Reads by the processor, since a device copy could
  /// fail.
  static bool holds(const cuda_cache::lease& lease, const cuda_shared& memory, std::uint32_t seed) {
    const auto* const bytes = static_cast<const std::byte*>(lease.data());
    return holds_pattern(bytes, 64, seed) &&
           bytes[memory.handle.size - 1] == pattern_byte(seed, memory.handle.size - 1);
  }

  /// Performs hits, misses, evictions, replaced memory, a conflict, an invalidation, a dropped peer and a flush.
  void scenario(cuda_cache& cache) {
    auto all = kept_;
    all.push_back(peer.allocate(32 * kib, 4));
    for (int round = 0; round < 2; ++round)
      for (std::uint32_t seed = 0; seed < all.size(); ++seed) use(cache, all[seed], seed);
    peer.free(all[4].address);
    all[4] = peer.allocate(64 * kib, 5);
    use(cache, all[4], 5);
    cache.invalidate(any_peer, all[4].handle.allocation());
    use(cache, all[4], 5);
    static_cast<void>(cache.drop_peer(any_peer));  // its result depends on the fault
    use(cache, all[3], 3);
    use_window(cache);
    static_cast<void>(cache.flush());
    peer.free(all[4].address);
  }

  /// Imports segments into a window, if it can be made, of which one is then replaced.
  void use_window(cuda_cache& cache) {
    const memory_window window{growing_.handle.exporter, growing_.handle.base, growing_.handle.size};
    const auto at = cache.backend().add_window(window);
    for (std::uint32_t seed = 6; seed < 8; ++seed) {
      peer.replace_segment(growing_.address + segment, segment, seed);
      const auto shared = peer.share_segments(growing_.address, 2 * segment).value();
      const std::array handles{shared.at(0).handle, shared.at(1).handle};
      const auto held = cache.acquire_segments(any_peer, handles, growing_.address, 2 * segment);
      if (!held) continue;  // the fault struck
      if (at) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held->data()), *at);
      }
      EXPECT_TRUE(holds_pattern(held->piece(0).data, 64, 6));
      EXPECT_TRUE(holds_pattern(held->piece(1).data, 64, seed));
    }
    if (cache.flush() && at) static_cast<void>(cache.backend().remove_window(window));
  }

  /// Expects that everything works afterwards, and that nothing is left open.
  void expect_sound(cuda_cache& cache) {
    emulation().fail(failing_, 1, 0, false);
    const auto after = peer.allocate(4 * kib, 9);
    touch(cache, after, 9);
    peer.free(after.address);
    EXPECT_TRUE(cache.flush());
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open, 0U);
    EXPECT_EQ(now.quarantined, 0U);
    EXPECT_EQ(cache.backend().held(), 0U);
    TearDown();
  }

  /// Runs the scenario with that call failing; returns whether the fault struck.
  bool run_with(const char* call, std::uint64_t nth, status code, const cache_options& options) {
    SCOPED_TRACE(::testing::Message() << call << " fails, the " << nth << "th time, with " << static_cast<int>(code));
    SetUp();
    failing_ = call;
    EXPECT_TRUE(emulation().fail(call, 1, 0, false)) << "there is no such entry point";
    const auto before = emulation().calls(call);
    bool reached = false;
    {
      cuda_cache cache(cuda_ipc_importer(), options);
      emulation().fail(call, nth, static_cast<int>(code), false);
      scenario(cache);
      reached = emulation().calls(call) - before >= nth;
      expect_sound(cache);
    }
    restore_context();
    return reached;
  }

 private:
  /// Restores the context: a pop that failed has left the importer's context current.
  static void restore_context() {
    cuda::context now = nullptr;
    while (gpu().calls().ctx_get_current(&now) == status::success && now != nullptr)
      static_cast<void>(gpu().calls().ctx_pop_current(&now));
  }

  const std::vector<cuda_peer::memory> kept_{peer.allocate(32 * kib, 0), peer.allocate(32 * kib, 1),
                                             peer.allocate_pooled(32 * kib, 2), peer.map_segments(2, segment, 3)};
  const cuda_peer::memory growing_{peer.map_segments(2, segment, 6)};
  const char* failing_ = "";
};

// In a short run each call of the driver fails with one of the codes in turn, else with each of them.
TEST_P(cuda_faults, R10_R41_any_single_fault_leaks_nothing) {
  constexpr std::uint64_t full_length = 100'000;
  const std::size_t codes_a_call = model_steps() < full_length ? 1 : faults.size();
  std::size_t next = 0;
  for (const char* const call : calls) {
    std::uint64_t reached = 0;
    for (std::size_t turn = 0; turn < codes_a_call; ++turn)
      for (reached = 0;; ++reached) {
        const status code = faults.at((codes_a_call == 1 ? next++ : turn) % faults.size());
        if (!run_with(call, reached + 1, code, {.max_count = 4, .closes = GetParam()})) break;
        if (HasFailure()) return;
      }
    EXPECT_GT(reached, 0U) << "the scenario never calls " << call;
  }
}

INSTANTIATE_TEST_SUITE_P(closes, cuda_faults, ::testing::Values(close_policy::immediate, close_policy::deferred),
                         cuda_faults::name);

/// Faults of the exporter's side, in this process.
class cuda_exporter_faults : public cuda_test {
 protected:
  void SetUp() override {
    PINFOLD_EMULATION_ONLY();
    cuda_test::SetUp();
    gpu().demand([&] { return gpu().calls().mem_alloc(&own_, 4096); });
  }
  void TearDown() override {
    if (!real_gpu()) gpu().demand([&] { return gpu().calls().mem_free(own_); });
  }
  cuda::device_pointer own_ = 0;
};

TEST_F(cuda_exporter_faults, R10_failed_share_leaks_nothing_and_succeeds_when_repeated) {
  for (const char* const call : {"cuDevicePrimaryCtxRetain", "cuEventCreate", "cuIpcGetEventHandle",
                                 "cuIpcGetMemHandle", "cuCtxPushCurrent", "cuCtxPopCurrent"}) {
    SCOPED_TRACE(call);
    emulation().reset();
    {
      auto exporter = cuda_ipc_exporter::create({.events = true});
      ASSERT_TRUE(exporter);
      emulation().fail(call, 1, static_cast<int>(status::unknown), false);
      EXPECT_FALSE(exporter->share(own_));
      const auto shared = exporter->share(own_);
      ASSERT_TRUE(shared) << describe(shared.error());
      EXPECT_TRUE(exporter->record(*shared));
    }
    const auto failed_creates = std::string_view(call) == "cuEventCreate" ? 1U : 0U;
    EXPECT_EQ(emulation().calls("cuEventCreate") - failed_creates, emulation().calls("cuEventDestroy"));
    EXPECT_EQ(gpu().calls().ctx_set_current(nullptr), status::success);
  }
}

TEST_F(cuda_exporter_faults, failed_record_returns_the_drivers_error) {
  auto exporter = cuda_ipc_exporter::create({.events = true});
  const auto shared = exporter->share(own_);
  ASSERT_TRUE(shared) << describe(shared.error());
  emulation().fail("cuEventRecord", 1, static_cast<int>(status::launch_failed), false);
  const auto refused = exporter->record(*shared);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().native, static_cast<int>(status::launch_failed));
  EXPECT_TRUE(exporter->record(*shared));
}

}  // namespace
}  // namespace pinfold::testing::cuda_fault_injection_test
