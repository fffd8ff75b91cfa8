// SPDX-License-Identifier: BSD-3-Clause
// Registrations of GPU memory are identified by the driver's buffer id: memory that was freed and allocated again at
// its address is never a hit.
#include "support/fixtures/cuda_test.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/cuda_memory.hpp>
#include <pinfold/registrars/null.hpp>

#include <atomic>
#include <thread>

namespace pinfold::testing::cuda_memory_test {
namespace {

using memory_registrar = cuda_memory<null_registrar>;
using memory_cache = cache<memory_registrar>;
static_assert(identifying_registrar<memory_registrar>);

/// Memory of this process's GPU; freed at the end.
class device_memory {
 public:
  explicit device_memory(std::size_t bytes) : bytes_(bytes) { allocate(); }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;
  ~device_memory() {
    try {
      free();
    } catch (const std::exception& failure) {
      ADD_FAILURE() << failure.what();
    }
  }

  void free() {
    if (at_ != 0) gpu().demand([this] { return gpu().calls().mem_free(at_); });
    at_ = 0;
  }
  /// Returns whether the memory lies at its old address.
  bool allocate_again() {
    const auto before = at_;
    free();
    allocate();
    EXPECT_TRUE(real_gpu() || at_ == before);
    return at_ == before;
  }
  [[nodiscard]] void* at(std::size_t offset = 0) const { return reinterpret_cast<void*>(at_ + offset); }
  [[nodiscard]] range all() const { return {at_, at_ + bytes_}; }

 private:
  void allocate() {
    gpu().demand([this] { return gpu().calls().mem_alloc(&at_, bytes_); });
  }

  std::size_t bytes_;
  cuda::device_pointer at_ = 0;
};

class cuda_identified : public cuda_test {
 protected:
  static constexpr std::size_t size = 32 * kib;

  static memory_cache make(cuda_freed freed = cuda_freed::compared) {
    return memory_cache(memory_registrar(null_registrar(), freed));
  }
  void expect_error(errc code, const range& what) {
    auto cache = make();
    const auto refused = cache.acquire(reinterpret_cast<void*>(what.begin), what.size());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), code) << describe(refused.error());
    EXPECT_EQ(cache.statistics().open, 0U);
  }

  device_memory neighbour{size};
  device_memory memory{size};
};

#define SKIP_UNLESS_SAME(again) \
  if (!(again)) GTEST_SKIP() << "this driver gave another address"

TEST_F(cuda_identified, R20_request_inside_a_registration_is_a_hit) {
  auto cache = make();
  ASSERT_TRUE(cache.acquire(memory.at(), size));
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, size - 1})
    EXPECT_TRUE(cache.acquire(memory.at(offset), 1));
  EXPECT_EQ(cache.statistics().opens, 1U);
  EXPECT_EQ(cache.statistics().hits, 3U);
  EXPECT_TRUE(cache.find(memory.at(), size));
}

TEST_F(cuda_identified, R32_compared_memory_allocated_again_is_never_a_hit) {
  auto cache = make();
  for (int round = 0; round < 20; ++round) {
    const auto lease = cache.acquire(memory.at(), size);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_EQ(lease->registration().identity, identify_cuda_memory(memory.all()));
    SKIP_UNLESS_SAME(memory.allocate_again());
    EXPECT_FALSE(cache.find(memory.at(), size)) << "nor is it found";
  }
  EXPECT_EQ(cache.statistics().hits, 0U);
  EXPECT_EQ(cache.statistics().opens, 20U);
}

TEST_F(cuda_identified, R32_part_of_a_new_larger_allocation_is_not_a_hit) {
  auto cache = make();
  ASSERT_TRUE(cache.acquire(memory.at(), 100));
  const auto before = memory.all().begin;
  memory.free();
  device_memory larger(2 * size);
  SKIP_UNLESS_SAME(larger.all().begin == before);
  const auto lease = cache.acquire(larger.at(), 100);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->registration().identity, identify_cuda_memory(larger.all()));
  EXPECT_EQ(cache.statistics().opens, 2U);
}

TEST_F(cuda_identified, R32_announced_memory_is_a_hit_until_invalidate) {
  auto cache = make(cuda_freed::announced);
  ASSERT_TRUE(cache.acquire(memory.at(), size));
  SKIP_UNLESS_SAME(memory.allocate_again());
  ASSERT_TRUE(cache.acquire(memory.at(), size));
  EXPECT_EQ(cache.statistics().hits, 1U) << "the application has broken its word, and the driver is not asked";
  cache.invalidate(memory.at(), size);
  SKIP_UNLESS_SAME(memory.allocate_again());
  EXPECT_FALSE(cache.find(memory.at(), size));
  const auto lease = cache.acquire(memory.at(), size);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->registration().identity, identify_cuda_memory(memory.all()));
}

TEST_F(cuda_identified, R5_lease_on_freed_memory_stays_valid_and_is_stale) {
  auto cache = make();
  auto old = cache.acquire(memory.at(), size);
  ASSERT_TRUE(old);
  SKIP_UNLESS_SAME(memory.allocate_again());
  const auto fresh = cache.acquire(memory.at(), size);
  ASSERT_TRUE(fresh);
  EXPECT_TRUE(old->stale());
  EXPECT_FALSE(fresh->stale());
  EXPECT_NE(old->registration().identity, fresh->registration().identity);
  EXPECT_TRUE(old->release());
  EXPECT_EQ(cache.statistics().open, 1U);
}

TEST_F(cuda_identified, memory_that_was_freed_is_not_found_and_not_registered) {
  auto cache = make();
  ASSERT_TRUE(cache.acquire(memory.at(), size));
  const auto gone = memory.all();
  void* const at = memory.at();
  memory.free();
  EXPECT_FALSE(cache.find(at, size));
  EXPECT_EQ(cache.acquire(at, size).error(), errc::invalid_argument);
  expect_error(errc::invalid_argument, gone);
}

TEST_F(cuda_identified, range_over_several_allocations_is_refused_and_each_is_accepted) {
  SKIP_UNLESS_SAME(memory.all().begin == neighbour.all().end);
  expect_error(errc::invalid_range, {neighbour.all().begin, memory.all().end});
  expect_error(errc::invalid_range, {neighbour.all().end - 1, memory.all().begin + 1});
  auto cache = make();
  EXPECT_TRUE(cache.acquire(neighbour.at(), size));
  EXPECT_TRUE(cache.acquire(memory.at(), size));
}

TEST_F(cuda_identified, R2_exactly_the_requested_range_is_registered) {
  EXPECT_EQ(memory_registrar(null_registrar()).limits().granularity, 1U);
  auto cache = make();
  const auto lease = cache.acquire(memory.at(100), 10);
  ASSERT_TRUE(lease);
  EXPECT_EQ(cache.dump().front().covered, (range{memory.all().begin + 100, memory.all().begin + 110}));
}

TEST_F(cuda_identified, memory_that_is_not_on_the_gpu_is_refused) {
  std::vector<std::byte> host(size);
  const auto begin = reinterpret_cast<std::uintptr_t>(host.data());
  expect_error(errc::invalid_argument, {begin, begin + 1});
  cuda::device_pointer managed = 0;
  gpu().demand([&] { return gpu().calls().mem_alloc_managed(&managed, size, cuda::attach_global); });
  expect_error(errc::unsupported, {managed, managed + 1});
  gpu().demand([&] { return gpu().calls().mem_free(managed); });
}

/// Two segments side by side.
class cuda_identified_segments : public cuda_test {
 protected:
  void SetUp() override {
    cuda_test::SetUp();
    gpu().demand([&] { return gpu().calls().mem_address_reserve(&at_, 2 * segment, 0, 0, 0); });
    map(0);
    map(1);
  }
  void TearDown() override {
    gpu().demand([&] { return gpu().calls().mem_unmap(at_, 2 * segment); });
    gpu().demand([&] { return gpu().calls().mem_address_free(at_, 2 * segment); });
    cuda_test::TearDown();
  }
  void replace(std::size_t which) {
    gpu().demand([&] { return gpu().calls().mem_unmap(at_ + which * segment, segment); });
    map(which);
  }
  [[nodiscard]] void* at(std::size_t offset) const { return reinterpret_cast<void*>(at_ + offset); }

 private:
  void map(std::size_t which) {
    const auto& cu = gpu().calls();
    cuda::allocation_properties wanted{};
    wanted.type = cuda::allocation_type::pinned;
    wanted.where = {cuda::location_type::on_device, 0};
    cuda::generic_allocation physical = 0;
    gpu().demand([&] { return cu.mem_create(&physical, segment, &wanted, 0); });
    gpu().demand([&] { return cu.mem_map(at_ + which * segment, segment, 0, physical, 0); });
    gpu().demand([&] { return cu.mem_release(physical); });
  }

  cuda::device_pointer at_ = 0;
};

TEST_F(cuda_identified_segments, R32_replaced_segment_is_no_hit_and_its_neighbour_is_one) {
  memory_cache cache{memory_registrar(null_registrar())};
  ASSERT_TRUE(cache.acquire(at(0), segment));
  ASSERT_TRUE(cache.acquire(at(segment), segment));
  replace(1);
  EXPECT_FALSE(cache.find(at(segment), segment));
  EXPECT_TRUE(cache.find(at(0), segment));
  ASSERT_TRUE(cache.acquire(at(segment), segment));
  EXPECT_EQ(cache.statistics().opens, 3U);
}

TEST_F(cuda_identified_segments, a_range_over_two_segments_is_refused) {
  memory_cache cache{memory_registrar(null_registrar())};
  EXPECT_EQ(cache.acquire(at(0), segment + 1).error(), errc::invalid_range);
  EXPECT_EQ(cache.acquire(at(segment - 1), 2).error(), errc::invalid_range);
}

TEST_F(cuda_identified, R46_no_lease_is_stale_while_a_thread_frees_and_allocates) {
  auto cache = make();
  void* const at = memory.at();
  std::atomic<std::uint64_t> published{identify_cuda_memory(memory.all())->id};
  std::atomic<bool> over{false};
  std::atomic<int> stale{0};
  std::atomic<int> leased{0};
  const auto acquire = [&] {
    while (!over) {
      const auto before = published.load();
      const auto lease = cache.acquire(at, size);
      if (!lease) continue;  // the memory was just free
      ++leased;
      if (lease->registration().identity.id < before) ++stale;
      const auto between = published.load();
      const auto found = cache.find(at, size);
      if (found && found->registration().identity.id < between) ++stale;
    }
  };
  {
    std::jthread one(acquire);
    std::jthread two(acquire);
    for (int round = 0; round < 2000 || leased == 0; ++round) {  // the threads may begin late
      if (!memory.allocate_again()) break;
      published = identify_cuda_memory(memory.all())->id;  // ids only grow
      if (round % 16 == 0) std::this_thread::yield();
    }
    over = true;
  }
  EXPECT_EQ(stale, 0);
  EXPECT_GT(leased, 0);
}

}  // namespace
}  // namespace pinfold::testing::cuda_memory_test
