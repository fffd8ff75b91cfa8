// SPDX-License-Identifier: BSD-3-Clause
// An import of memory of the virtual memory API is whole, segment by segment; the error of unshareable memory says why.
#include "support/fixtures/cuda_test.hpp"

#include <string>
#include <sys/mman.h>

namespace pinfold::testing::cuda_segments_test {
namespace {

class cuda_segments : public cuda_peer_test {
 protected:
  using verb = cuda_order::verb;

  void expect_unsupported(verb kind) {
    const auto refused = peer.share_new(kind, 32 * kib);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), errc::unsupported) << describe(refused.error());
  }
};

TEST_F(cuda_segments, several_segments_are_imported_as_one_range) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.map_segments(3, segment, 7);
  EXPECT_EQ(memory.handle.size, 3 * segment);
  touch(cache, memory, 7);
  EXPECT_EQ(cache.statistics().bytes_now, 3 * segment);
  peer.write(memory.address + segment, segment, 8);
  const auto lease = acquire(cache, memory);
  ASSERT_TRUE(lease);
  const auto* const second = static_cast<const std::byte*>(lease->data()) + segment;
  EXPECT_TRUE(gpu().holds(second, segment, 8)) << "it is the exporter's memory, not a copy";
  EXPECT_EQ(cache.statistics().opens, 1U);
}

TEST_F(cuda_segments, exporter_reads_what_the_importer_wrote) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.map_segments(2, segment, 1);
  const auto lease = acquire(cache, memory);
  ASSERT_TRUE(lease);
  gpu().write(reinterpret_cast<std::uintptr_t>(lease->data()), 2 * segment, 9);
  gpu().demand([] { return gpu().calls().ctx_synchronize(); });
  EXPECT_TRUE(peer.holds(memory.address, 2 * segment, 9));
}

TEST_F(cuda_segments, overlapping_ranges_can_be_shared) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto all = peer.map_segments(4, segment, 5);
  const auto left = peer.share(all.address, 2 * segment);
  const auto right = peer.share(all.address + segment, 2 * segment);
  ASSERT_TRUE(left && right);
  EXPECT_EQ(peer.share(all.address, 2 * segment)->handle, left->handle) << "the same until the memory is freed";
  EXPECT_EQ(peer.share(all.address, 4 * segment)->handle, all.handle);
  for (const auto& one : {*left, *right}) {
    const auto lease = acquire(cache, one);
    ASSERT_TRUE(lease) << describe(lease.error());
  }
  touch(cache, all, 5);
}

TEST_F(cuda_segments, R4_a_replaced_segment_makes_the_handle_stale) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.map_segments(3, segment, 1);
  touch(cache, old, 1);
  EXPECT_TRUE(cache.flush());
  peer.replace_segment(old.address + segment, segment, 2);
  const auto refused = acquire(cache, old);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  EXPECT_EQ(cache.backend().held(), 0U) << "the first segment was given back";
  peer.write(old.address, 3 * segment, 3);
  const auto fresh = peer.share(old.address, 3 * segment);
  ASSERT_TRUE(fresh);
  EXPECT_NE(fresh->handle, old.handle);
  touch(cache, *fresh, 3);
}

TEST_F(cuda_segments, R4_a_replaced_segment_turns_the_open_entry_stale) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.map_segments(3, segment, 1);
  touch(cache, old, 1);
  peer.replace_segment(old.address + 2 * segment, segment, 2);
  peer.write(old.address, 3 * segment, 3);
  const auto fresh = peer.share(old.address, 3 * segment);
  ASSERT_TRUE(fresh);
  touch(cache, *fresh, 3);
  EXPECT_EQ(cache.statistics().invalid, 1U);
  EXPECT_EQ(cache.backend().held(), 1U);
}

TEST_F(cuda_segments, part_of_a_range_is_shared_as_the_segments_that_it_touches) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.map_segments(4, segment, 1);
  peer.write(memory.address + segment, 2 * segment, 2);
  const auto part = peer.share(memory.address + 2 * segment - 1, 2);
  ASSERT_TRUE(part) << describe(part.error());
  EXPECT_EQ(part->handle.base, memory.address + segment);
  EXPECT_EQ(part->handle.size, 2 * segment);
  EXPECT_EQ(part->offset, segment - 1);
  EXPECT_EQ(part->address, memory.address + 2 * segment - 1);
  touch(cache, *part, 2);
}

TEST_F(cuda_segments, part_that_ends_behind_the_allocation_is_refused) {
  const auto memory = peer.map_segments(2, segment, 1);
  EXPECT_EQ(peer.share(memory.address + segment, segment + 1).error(), errc::invalid_range);
  const auto plain = peer.allocate(32 * kib, 1);
  EXPECT_EQ(peer.share(plain.address + 1, 32 * kib).error(), errc::invalid_range);
  EXPECT_EQ(peer.share(4096).error(), errc::invalid_argument);
}

TEST_F(cuda_segments, handle_stays_equal_until_the_memory_is_replaced) {
  const auto plain = peer.allocate(32 * kib, 1);
  const auto inside = peer.share(plain.address + 100, 10);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->handle, plain.handle);
  EXPECT_EQ(inside->offset, 100U);
  const auto mapped = peer.map_segments(2, segment, 1);
  EXPECT_EQ(peer.share(mapped.address, 2 * segment)->handle, mapped.handle);
  const auto pooled = peer.allocate_pooled(32 * kib, 1);
  EXPECT_EQ(peer.share(pooled.address + 1)->handle, pooled.handle);
}

TEST_F(cuda_segments, memory_of_a_pool_is_imported) {
  cuda_cache cache{cuda_ipc_importer()};
  std::vector<cuda_peer::memory> all;
  for (std::uint32_t seed = 0; seed < 5; ++seed)
    all.push_back(peer.allocate_pooled(32 * kib + std::size_t{4096} * seed, seed));
  for (std::uint32_t seed = 0; seed < 5; ++seed) touch(cache, all[seed], seed);
  for (const auto& one : all) EXPECT_EQ(one.handle.pool, all[0].handle.pool);
  peer.free(all[2].address);
  const auto again = peer.allocate_pooled(40 * kib, 9);
  touch(cache, again, 9);
  touch(cache, all[1], 1);
}

TEST_F(cuda_segments, R6_larger_pool_allocation_at_the_same_address_replaces_the_old_entry) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.allocate_pooled(32 * kib, 1);
  touch(cache, old, 1);
  peer.free(old.address);
  const auto fresh = peer.allocate_pooled(64 * kib, 2);
  touch(cache, fresh, 2);
  const auto part = cache.acquire(any_peer, fresh.handle, fresh.address, 4 * kib);  // the old entry covers it, too
  ASSERT_TRUE(part);
  EXPECT_TRUE(gpu().holds(part->data(), 4 * kib, 2));
}

TEST_F(cuda_segments, kinds_that_cannot_be_shared_are_unsupported_across_processes) {
  expect_unsupported(verb::allocate_private);
  expect_unsupported(verb::allocate_managed);
}

/// Runs in this process, where the message can be read.
class cuda_unshareable : public cuda_test {
 protected:
  void expect_sentence(std::uint64_t pointer, const char* words) {
    const auto refused = exporter_.share(pointer);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), errc::unsupported) << describe(refused.error());
    EXPECT_NE(std::string(refused.error().message).find(words), std::string::npos) << refused.error().message;
  }

 private:
  cuda_ipc_exporter exporter_ = cuda_ipc_exporter::create().value();
};

TEST_F(cuda_unshareable, memory_of_the_default_pool_is_refused) {
  cuda::device_pointer at = 0;
  gpu().demand([&] { return gpu().calls().mem_alloc_async(&at, 32 * kib, nullptr); });
  expect_sentence(at, "default pool");
  gpu().demand([&] { return gpu().calls().mem_free(at); });
}

TEST_F(cuda_unshareable, managed_memory_is_refused) {
  cuda::device_pointer at = 0;
  gpu().demand([&] { return gpu().calls().mem_alloc_managed(&at, 32 * kib, cuda::attach_global); });
  expect_sentence(at, "managed memory");
  gpu().demand([&] { return gpu().calls().mem_free(at); });
}

TEST_F(cuda_unshareable, host_memory_is_refused) {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  gpu().demand([&] { return gpu().calls().mem_host_register(page, 4096, cuda::host_register_device_map); });
  expect_sentence(reinterpret_cast<std::uintptr_t>(page), "host memory");
  gpu().demand([&] { return gpu().calls().mem_host_unregister(page); });
  ::munmap(page, 4096);
}

TEST_F(cuda_unshareable, segments_without_a_handle_type_are_refused) {
  const auto& cu = gpu().calls();
  cuda::allocation_properties wanted{};
  wanted.type = cuda::allocation_type::pinned;
  wanted.where = {cuda::location_type::on_device, 0};
  cuda::device_pointer at = 0;
  cuda::generic_allocation physical = 0;
  gpu().demand([&] { return cu.mem_address_reserve(&at, segment, 0, 0, 0); });
  gpu().demand([&] { return cu.mem_create(&physical, segment, &wanted, 0); });
  gpu().demand([&] { return cu.mem_map(at, segment, 0, physical, 0); });
  expect_sentence(at, "cuMemCreate");
  gpu().demand([&] { return cu.mem_unmap(at, segment); });
  gpu().demand([&] { return cu.mem_release(physical); });
  gpu().demand([&] { return cu.mem_address_free(at, segment); });
}

TEST_F(cuda_unshareable, memory_imported_from_another_process_is_refused) {
  cuda_peer peer;
  cuda_ipc_importer importer;
  const auto memory = peer.allocate(32 * kib, 1);
  const auto made = importer.open(any_peer, memory.handle);
  ASSERT_TRUE(made);
  auto exporter = cuda_ipc_exporter::create();
  ASSERT_TRUE(exporter);
  const auto refused = exporter->share(made->data);
  ASSERT_FALSE(refused) << "its exporter is to share it";
  EXPECT_EQ(refused.error(), errc::unsupported) << describe(refused.error());
  EXPECT_TRUE(importer.close(made->registration));
}

}  // namespace
}  // namespace pinfold::testing::cuda_segments_test
