// SPDX-License-Identifier: BSD-3-Clause
// GPU memory that grows: segments are shared, imported and mapped side by side, one by one.
#include "support/fixtures/cuda_test.hpp"

#include <pinfold/registrars/cuda_memory.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/segmented_registration.hpp>

#include <vector>

namespace pinfold::testing::cuda_growing_test {
namespace {

class cuda_growing : public cuda_peer_test {
 protected:
  [[nodiscard]] std::vector<cuda_ipc_handle> handles(std::uint64_t address, std::size_t bytes) {
    std::vector<cuda_ipc_handle> all;
    const auto shared = peer.share_segments(address, bytes);
    EXPECT_TRUE(shared) << describe(shared.error());
    if (shared)
      for (const auto& one : *shared) all.push_back(one.handle);
    return all;
  }
  [[nodiscard]] auto acquire_all(cuda_cache& cache, std::uint64_t address, std::size_t bytes) {
    return cache.acquire_segments(any_peer, handles(address, bytes), address, bytes);
  }
  static memory_window window_of(const cuda_peer::memory& all) {
    return {all.handle.exporter, all.handle.base, all.handle.size};
  }
};

TEST_F(cuda_growing, each_segment_has_a_handle_that_outlives_its_neighbours) {
  const auto all = peer.map_segments(3, segment, 1);
  const auto before = handles(all.address, 3 * segment);
  ASSERT_EQ(before.size(), 3U);
  peer.replace_segment(all.address + segment, segment, 2);
  const auto after = handles(all.address, 3 * segment);
  ASSERT_EQ(after.size(), 3U);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_EQ(after[2], before[2]);
  peer.unmap_segment(all.address + segment, segment);
  EXPECT_EQ(peer.share_segments(all.address, 3 * segment).error(), errc::invalid_range);
  EXPECT_EQ(peer.share_segments(all.address, 0).error(), errc::invalid_range);
  const auto plain = peer.allocate(32 * kib, 3);
  EXPECT_EQ(handles(plain.address, 32 * kib).size(), 1U);
  EXPECT_EQ(peer.share_segments(plain.address, 1024 * segment).error(), errc::invalid_range);
}

TEST_F(cuda_growing, only_what_changed_is_opened_again) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto all = peer.map_segments(4, segment, 1);
  ASSERT_TRUE(acquire_all(cache, all.address, 4 * segment));
  EXPECT_EQ(cache.statistics().opens, 4U);
  peer.replace_segment(all.address + 2 * segment, segment, 5);
  const auto held = acquire_all(cache, all.address, 4 * segment);
  ASSERT_TRUE(held) << describe(held.error());
  EXPECT_EQ(cache.statistics().opens, 5U);
  EXPECT_TRUE(gpu().holds(held->at(all.address + 2 * segment).data, segment, 5));
}

TEST_F(cuda_growing, a_window_makes_segments_adjacent) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto all = peer.map_segments(4, segment, 1);
  peer.unmap_segment(all.address, segment);
  const auto window = cache.backend().add_window(window_of(all));
  ASSERT_TRUE(window) << describe(window.error());
  const auto later = acquire_all(cache, all.address + segment, 3 * segment);
  ASSERT_TRUE(later) << describe(later.error());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(later->data()), *window + segment);
  peer.map_segment(all.address, segment, 7);
  const auto whole = acquire_all(cache, all.address, 4 * segment);
  ASSERT_TRUE(whole) << describe(whole.error());
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(whole->data()), *window);
  EXPECT_EQ(cache.statistics().opens, 4U);
  EXPECT_TRUE(gpu().holds(whole->data(), segment, 7));
  peer.write(all.address, 4 * segment, 8);
  EXPECT_TRUE(gpu().holds(whole->data(), 4 * segment, 8)) << "one range, across segments";
  EXPECT_EQ(cache.backend().remove_window(window_of(all)).error(), errc::in_use_conflict);
}

TEST_F(cuda_growing, a_replaced_segment_leaves_the_others_mapped) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto all = peer.map_segments(2, segment, 1);
  ASSERT_TRUE(cache.backend().add_window(window_of(all)));
  auto first = acquire_all(cache, all.address, segment);
  auto second = acquire_all(cache, all.address + segment, segment);
  ASSERT_TRUE(first && second);
  peer.replace_segment(all.address + segment, segment, 2);
  const auto early = acquire_all(cache, all.address, 2 * segment);
  EXPECT_EQ(early.error(), errc::in_use_conflict) << "the old segment has the place, and is leased";
  EXPECT_TRUE(second->release());
  const auto both = acquire_all(cache, all.address, 2 * segment);
  ASSERT_TRUE(both) << describe(both.error());
  EXPECT_EQ(both->data(), first->data());
  EXPECT_TRUE(gpu().holds(first->data(), segment, 1));
  EXPECT_TRUE(gpu().holds(both->at(all.address + segment).data, segment, 2));
}

TEST_F(cuda_growing, windows_are_checked_and_given_back) {
  cuda_ipc_importer importer;
  const auto all = peer.map_segments(2, segment, 1);
  auto window = window_of(all);
  EXPECT_EQ(importer.remove_window(window).error(), errc::invalid_argument);
  EXPECT_EQ(importer.add_window({}).error(), errc::invalid_range);
  EXPECT_EQ(importer.add_window({1, UINT64_MAX, 2}).error(), errc::invalid_range);
  const auto at = importer.add_window(window);
  ASSERT_TRUE(at);
  EXPECT_EQ(importer.add_window(window), *at);
  window.size = segment;
  EXPECT_EQ(importer.add_window(window).error(), errc::in_use_conflict);
  EXPECT_EQ(importer.remove_window(window).error(), errc::invalid_argument);
  EXPECT_TRUE(importer.remove_window(window_of(all)));
  EXPECT_EQ(importer.remove_window(window_of(all)).error(), errc::invalid_argument);
}

TEST_F(cuda_growing, importers_with_and_without_a_window_have_mappings_of_their_own) {
  cuda_cache plain{cuda_ipc_importer()};
  cuda_cache windowed{cuda_ipc_importer()};
  const auto all = peer.map_segments(2, segment, 1);
  const auto apart = acquire_all(plain, all.address, 2 * segment);
  const auto window = windowed.backend().add_window(window_of(all));
  ASSERT_TRUE(apart && window);
  const auto together = acquire_all(windowed, all.address, 2 * segment);
  ASSERT_TRUE(together);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(together->data()), *window);
  EXPECT_NE(apart->piece(0).data, together->piece(0).data);
}

TEST_F(cuda_growing, a_dead_exporter_ends_only_what_is_new) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto all = peer.map_segments(2, segment, 4);
  const auto known = handles(all.address, 2 * segment);
  auto kept = cache.acquire_segments(any_peer, std::span(known).first(1), all.address, segment);
  ASSERT_TRUE(kept);
  peer.process().kill();
  EXPECT_EQ(cache.acquire_segments(any_peer, known, all.address, 2 * segment).error(), errc::peer_gone);
  EXPECT_EQ(cache.can_open(known[1]).error(), errc::peer_gone);
  EXPECT_TRUE(gpu().holds(kept->data(), segment, 4));
}

TEST_F(cuda_growing, can_open_answers_without_opening) {
  const cuda_ipc_importer importer;
  const auto plain = peer.allocate(32 * kib, 1);
  const auto mapped = peer.map_segments(1, segment, 1);
  const auto pooled = peer.allocate_pooled(32 * kib, 1);
  const auto before = gpu().counters();
  for (const auto& handle : {plain.handle, mapped.handle, pooled.handle}) {
    EXPECT_TRUE(importer.can_open(handle)) << describe(importer.can_open(handle).error());
    auto foreign = handle;
    foreign.host ^= 1;
    EXPECT_EQ(importer.can_open(foreign).error(), errc::invalid_handle) << "damaged";
  }
  EXPECT_EQ(gpu().counters().opens, before.opens);
  EXPECT_EQ(importer.held(), 0U);
  EXPECT_EQ(cuda_ipc_importer({.device = 99}).can_open(plain.handle).error(), errc::invalid_argument);
  EXPECT_EQ(importer.can_open({}).error(), errc::invalid_handle);
  EXPECT_TRUE(contains_all(needs(mapped.handle), handle_needs::exporter_serves));
  EXPECT_TRUE(contains_all(needs(plain.handle), handle_needs::exporter_serves));
  EXPECT_FALSE(contains_all(needs(plain.handle), handle_needs::fabric));
  peer.process().kill();
  for (const auto& handle : {plain.handle, mapped.handle, pooled.handle})
    EXPECT_EQ(importer.can_open(handle).error(), errc::peer_gone);
}

/// Segments of this process, in one address range.
class own_segments {
 public:
  explicit own_segments(std::size_t count) : bytes_(count * segment) {
    gpu().demand([this] { return gpu().calls().mem_address_reserve(&at_, bytes_, 0, 0, 0); });
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
      wanted.where = {cuda::location_type::on_device, 0};
      cuda::generic_allocation physical = 0;
      const auto& cu = gpu().calls();
      if (const auto made = cu.mem_create(&physical, segment, &wanted, 0); made != cuda::status::success) return made;
      const auto mapped = cu.mem_map(at(number), segment, 0, physical, 0);
      static_cast<void>(cu.mem_release(physical));
      const cuda::access_description both{wanted.where, cuda::access_rights::read_write};
      return mapped == cuda::status::success ? cu.mem_set_access(at(number), segment, &both, 1) : mapped;
    });
  }
  void unmap(std::size_t number) {
    gpu().demand([&] { return gpu().calls().mem_unmap(at(number), segment); });
  }
  [[nodiscard]] std::uint64_t at(std::size_t number) const { return at_ + number * segment; }
  [[nodiscard]] void* pointer(std::size_t number) const { return reinterpret_cast<void*>(at(number)); }

 private:
  std::size_t bytes_;
  cuda::device_pointer at_ = 0;
};

class cuda_growing_registered : public cuda_test {
 protected:
  using memory_cache = pinfold::cache<cuda_memory<null_registrar>>;
  static_assert(segmenting_registrar<cuda_memory<null_registrar>>);

  void SetUp() override {
    cuda_test::SetUp();
    for (std::size_t one = 0; one < 3; ++one) memory.map(one);
  }

  own_segments memory{4};
  memory_cache cache{cuda_memory{null_registrar()}};
};

TEST_F(cuda_growing_registered, a_range_over_several_segments_is_one_lease) {
  EXPECT_EQ(cache.acquire(memory.pointer(0), 3 * segment).error(), errc::invalid_range);
  const auto held = acquire_segmented(cache, memory.pointer(0), 3 * segment);
  ASSERT_TRUE(held) << describe(held.error());
  EXPECT_EQ(held->pieces(), 3U);
  EXPECT_EQ(held->data(), memory.pointer(0));
  EXPECT_EQ(held->at(memory.at(1) + 5).where, (range{memory.at(1) + 5, memory.at(2)}));
  EXPECT_EQ(held->lease_of(1).registration().identity.base, memory.at(1));
}

TEST_F(cuda_growing_registered, only_what_changed_is_registered_again) {
  ASSERT_TRUE(acquire_segmented(cache, memory.pointer(0), 3 * segment));
  EXPECT_EQ(cache.statistics().opens, 3U);
  memory.unmap(1);
  EXPECT_EQ(acquire_segmented(cache, memory.pointer(0), 3 * segment).error(), errc::invalid_range);
  memory.map(1);
  memory.map(3);
  ASSERT_TRUE(acquire_segmented(cache, memory.pointer(0), 4 * segment));
  EXPECT_EQ(cache.statistics().opens, 5U);
  ASSERT_TRUE(acquire_segmented(cache, memory.pointer(0), 4 * segment));
  EXPECT_EQ(cache.statistics().opens, 5U);
}

TEST_F(cuda_growing_registered, bad_ranges_are_refused) {
  EXPECT_EQ(acquire_segmented(cache, memory.pointer(0), 0).error(), errc::invalid_range);
  EXPECT_EQ(acquire_segmented(cache, memory.pointer(0), 4 * segment).error(), errc::invalid_range);
  EXPECT_EQ(acquire_segmented(cache, memory.pointer(3), segment).error(), errc::invalid_argument);
  const std::vector<range> given{{memory.at(0), memory.at(1)}, {memory.at(2), memory.at(3)}};
  EXPECT_EQ(acquire_segmented(cache, memory.pointer(0), 3 * segment, given).error(), errc::invalid_range);
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.statistics().open, 0U);
  auto moved = std::move(cache);
  EXPECT_EQ(acquire_segmented(cache, memory.pointer(0), segment).error(),
            errc::closed);  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace pinfold::testing::cuda_growing_test
