// SPDX-License-Identifier: BSD-3-Clause
// Does the same as import_cache_stress_test.cpp, over GPU memory of two other processes: all three kinds of it.
#include "support/fixtures/cuda_test.hpp"
#include "support/fixtures/import_arena.hpp"

namespace pinfold::testing::cuda_import_stress_test {
namespace {

using cuda::status;
using emulated_cuda::second_open;

template <second_open Rule>
struct cuda_source {
  using importer_type = cuda_ipc_importer;
  using handle = cuda_ipc_handle;

  std::array<cuda_peer, 2> peers;
  std::array<handle, arena_slots> current{};

  cuda_source() {
    emulation().reset();
    emulation().set_second_open(Rule);
    emulation().max_mappings(arena_room - 4);
  }
  cuda_source(const cuda_source&) = delete;
  cuda_source& operator=(const cuda_source&) = delete;

  importer_type importer() { return importer_type(); }
  handle replace(std::size_t slot, std::uint64_t size) {
    auto& peer = peers[slot % 2];
    auto& mine = current[slot];
    if (mine.size != 0) peer.free(mine.base);
    mine = allocate(slot, size);
    peer.write(mine.base, mine.size, seed_of(mine));
    fail_again();
    return mine;
  }
  void make_it_fail() { failing_ = true; }
  void heal() {
    failing_ = false;
    for (const char* const call : calls) emulation().fail(call, 1, 0, false);
  }
  [[nodiscard]] static bool holds(const handle& of, const void* data) {
    return gpu().holds(data, std::min<std::size_t>(of.size, arena_unit), seed_of(of));
  }
  [[nodiscard]] static std::size_t open_count(import_cache<importer_type>& cache) {
    const auto now = gpu().counters();
    EXPECT_EQ(now.double_closes, 0U);
    EXPECT_EQ(now.wrong_closes, 0U);
    EXPECT_EQ(now.opens, now.mapped) << "the driver has never seen a second open";
    return cache.backend().held() + now.live_mappings;
  }

 private:
  static constexpr std::array calls{"cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuMemAddressReserve",
                                    "cuMemMap",           "cuMemUnmap",          "cuMemPoolImportPointer"};

  static std::uint32_t seed_of(const handle& of) noexcept {
    return static_cast<std::uint32_t>(of.serial ^ of.exporter);
  }

  handle allocate(std::size_t slot, std::uint64_t size) {
    auto& peer = peers[slot % 2];
    if (slot % 32 == 5) return peer.map_segments(1, segment, 0).handle;
    if (slot % 8 == 7) return peer.allocate_pooled(size, 0).handle;
    return peer.allocate(size, 0).handle;
  }

  /// Makes the emulation fail one more call.
  void fail_again() {
    if (!failing_ || ++replaced_ % 3 != 0) return;
    const auto code = replaced_ % 2 == 0 ? status::launch_failed : status::out_of_memory;
    emulation().fail(calls[replaced_ / 3 % calls.size()], 1 + replaced_ % 7, static_cast<int>(code), false);
  }

  bool failing_ = false;
  std::size_t replaced_ = 0;
};

template <class Source>
class cuda_import_stress : public ::testing::Test {
 protected:
  void SetUp() override { PINFOLD_EMULATION_ONLY(); }  // a GPU may use freed memory again under a lease
};
using sources = ::testing::Types<cuda_source<second_open::counted>, cuda_source<second_open::refused>>;
TYPED_TEST_SUITE(cuda_import_stress, sources);

TYPED_TEST(cuda_import_stress, threads_never_hang_leak_or_read_wrong_bytes) { run_in_every_mode<TypeParam>(); }

}  // namespace
}  // namespace pinfold::testing::cuda_import_stress_test
