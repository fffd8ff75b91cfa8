// SPDX-License-Identifier: BSD-3-Clause
// GPU memory in segments, over the C interface.
#include "support/fixtures/cuda_test.hpp"

#include <pinfold/segments.h>

#include <vector>

namespace pinfold::testing::cuda_c_segments_test {
namespace {

class cuda_c_segments : public cuda_peer_test {
 protected:
  void SetUp() override {
    cuda_peer_test::SetUp();
    ASSERT_EQ(pinfold_create_cuda_ipc(0, nullptr, &cache), PINFOLD_OK);
  }
  void TearDown() override {
    EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
    cuda_peer_test::TearDown();
  }
  std::vector<cuda_ipc_handle> handles(std::uint64_t address, std::size_t bytes) {
    std::vector<cuda_ipc_handle> all;
    const auto shared = peer.share_segments(address, bytes);
    for (const auto& one : *shared) all.push_back(one.handle);
    return all;
  }

  pinfold_cache* cache = nullptr;
};

TEST_F(cuda_c_segments, all_segments_of_a_peer_are_leased_side_by_side) {
  const auto all = peer.map_segments(3, segment, 1);
  peer.replace_segment(all.address + segment, segment, 2);
  const auto known = handles(all.address, 3 * segment);
  const pinfold_window window{all.handle.exporter, all.handle.base, 3 * segment};
  void* whole = nullptr;
  ASSERT_EQ(pinfold_add_window(cache, &window, &whole), PINFOLD_OK) << pinfold_last_error()->message;
  std::vector<pinfold_lease> leases(3);
  std::size_t made = 0;
  ASSERT_EQ(pinfold_acquire_segments(cache, 1, known.data(), sizeof known[0], 3, all.address, 3 * segment,
                                     leases.data(), nullptr, &made),
            PINFOLD_OK)
      << pinfold_last_error()->message;
  ASSERT_EQ(made, 3U);
  for (std::size_t one = 0; one < 3; ++one) {
    const auto at = reinterpret_cast<std::uintptr_t>(whole) + one * segment;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(leases[one].data), at);
    if (one == 1) {
      EXPECT_TRUE(gpu().holds(at, segment, 2));
    }
  }
  EXPECT_EQ(pinfold_release_batch(leases.data(), made), PINFOLD_OK);
}

/// Segments of this process, in one address range.
class own_segments {
 public:
  explicit own_segments(std::size_t count) : bytes_(count * segment) {
    gpu().demand([this] { return gpu().calls().mem_address_reserve(&at_, bytes_, 0, 0, 0); });
    for (std::size_t one = 0; one < count; ++one) map(one);
  }
  own_segments(const own_segments&) = delete;
  own_segments& operator=(const own_segments&) = delete;
  ~own_segments() {
    for (std::size_t one = 0; one * segment < bytes_; ++one)
      static_cast<void>(gpu().calls().mem_unmap(at(one), segment));
    static_cast<void>(gpu().calls().mem_address_free(at_, bytes_));
  }

  void map(std::size_t number) {
    gpu().demand([&] {
      cuda::allocation_properties wanted{};
      wanted.type = cuda::allocation_type::pinned;
      wanted.requested_handle_types = cuda::allocation_handle_type::posix_file_descriptor;
      wanted.where = {cuda::location_type::on_device, 0};
      cuda::generic_allocation physical = 0;
      if (const auto got = gpu().calls().mem_create(&physical, segment, &wanted, 0); got != cuda::status::success)
        return got;
      const auto got = gpu().calls().mem_map(at(number), segment, 0, physical, 0);
      static_cast<void>(gpu().calls().mem_release(physical));
      return got;
    });
  }
  void unmap(std::size_t number) {
    gpu().demand([&] { return gpu().calls().mem_unmap(at(number), segment); });
  }
  [[nodiscard]] cuda::device_pointer at(std::size_t number) const noexcept { return at_ + number * segment; }

 private:
  std::size_t bytes_;
  cuda::device_pointer at_ = 0;
};

TEST_F(cuda_c_segments, each_segment_is_shared_with_a_handle_of_its_own) {
  pinfold_cuda_exporter* exporter = nullptr;
  ASSERT_EQ(pinfold_cuda_exporter_create(&exporter), PINFOLD_OK);
  own_segments memory(3);
  std::size_t count = 0;
  const auto shared = [&](std::size_t room = 3) {
    std::vector<cuda_ipc_handle> all(room);
    EXPECT_EQ(pinfold_cuda_share_segments(exporter, memory.at(0), 3 * segment, all.data(), sizeof all[0], room, &count),
              PINFOLD_OK)
        << pinfold_last_error()->message;
    EXPECT_EQ(count, 3U);
    return all;
  };
  const auto before = shared();
  EXPECT_EQ(before[1].base, memory.at(1));
  EXPECT_EQ(shared(), before) << "the same each time";
  EXPECT_EQ(shared(1)[0], before[0]);
  memory.unmap(1);
  EXPECT_EQ(pinfold_cuda_share_segments(exporter, memory.at(0), 3 * segment, nullptr, 160, 0, &count),
            PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(count, 0U);
  memory.map(1);
  const auto after = shared();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_EQ(after[2], before[2]);
  EXPECT_EQ(pinfold_cuda_share_segments(exporter, 4096, 1, nullptr, 160, 0, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_share_segments(nullptr, 4096, 1, nullptr, 160, 0, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_share_segments(exporter, 4096, 1, nullptr, 159, 0, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_share_segments(exporter, 4096, 1, nullptr, 160, 1, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_share_segments(exporter, 4096, 1, nullptr, 160, 0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_cuda_exporter_destroy(exporter);
}

}  // namespace
}  // namespace pinfold::testing::cuda_c_segments_test
