// SPDX-License-Identifier: BSD-3-Clause
// Memory of several segments: exported, imported, and mapped side by side.
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>

#include "os/page_bytes.hpp"
#include "support/host/pattern.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace memfd_segments_test {
namespace {

using namespace pinfold;
using namespace pinfold::testing;

constexpr peer_id peer{1};

class memfd_segments_here : public ::testing::Test {
 protected:
  [[nodiscard]] std::uintptr_t at(std::size_t pages) const {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + pages * page;
  }
  [[nodiscard]] void* pointer(std::size_t pages) const { return memory.data() + pages * page; }
  /// Adds a segment that holds the pattern.
  memfd_handle add(std::size_t pages, std::size_t count, std::uint32_t seed) {
    const auto made = memory.add(pages * page, count * page);
    EXPECT_TRUE(made) << describe(made.error());
    if (made) write_pattern(pointer(pages), count * page, seed);
    return made.value_or(memfd_handle{});
  }
  [[nodiscard]] result<segmented_lease<memfd_importer>> acquire(std::size_t pages, std::size_t count) {
    const auto handles = memory.handles(pointer(pages), count * page);
    if (!handles) return tl::unexpected(handles.error());
    return cache.acquire_segments(peer, *handles, at(pages), count * page);
  }

  const std::size_t page = os::page_bytes();
  memfd_exporter exporter = memfd_exporter::create().value();
  memfd_segments memory = exporter.reserve(16 * page).value();
  import_cache<memfd_importer> cache{memfd_importer()};
};

TEST_F(memfd_segments_here, a_range_without_segments_has_no_memory) {
  EXPECT_EQ(memory.size(), 16 * page);
  EXPECT_EQ(memory.segments(), 0U);
  EXPECT_EQ(memory.handles(pointer(0), page).error(), errc::invalid_range);
  EXPECT_EQ(memory.window().base, at(0));
  EXPECT_EQ(memory.window().exporter, exporter.id());
}

TEST_F(memfd_segments_here, bad_requests_change_nothing) {
  add(2, 2, 1);
  EXPECT_EQ(memory.add(0, 0).error(), errc::invalid_range);
  EXPECT_EQ(memory.add(1, page).error(), errc::invalid_range);
  EXPECT_EQ(memory.add(0, page + 1).error(), errc::invalid_range);
  EXPECT_EQ(memory.add(15 * page, 2 * page).error(), errc::invalid_range);
  EXPECT_EQ(memory.add(16 * page, page).error(), errc::invalid_range);
  EXPECT_EQ(memory.add(page, SIZE_MAX / page * page).error(), errc::invalid_range);
  for (const std::size_t first : {1U, 2U, 3U}) {
    EXPECT_EQ(memory.add(first * page, 2 * page).error(), errc::in_use_conflict) << first;
  }
  EXPECT_EQ(memory.remove(2 * page, page).error(), errc::invalid_range);
  EXPECT_EQ(memory.remove(3 * page, 2 * page).error(), errc::invalid_range);
  EXPECT_EQ(memory.remove(8 * page, page).error(), errc::invalid_range);
  EXPECT_EQ(memory.segments(), 1U);
  EXPECT_TRUE(holds_pattern(pointer(2), 2 * page, 1));
  EXPECT_EQ(exporter.reserve(0).error(), errc::invalid_range);
  EXPECT_EQ(exporter.reserve(SIZE_MAX).error(), errc::invalid_range);
}

TEST_F(memfd_segments_here, grow_adds_behind_the_last_segment) {
  EXPECT_EQ(memory.grow(1).value().base, at(0));
  EXPECT_EQ(memory.grow(2 * page).value().base, at(1));
  EXPECT_EQ(memory.grow(14 * page).error(), errc::invalid_range);
  EXPECT_EQ(memory.handles(pointer(0), 3 * page).value().size(), 2U);
}

TEST_F(memfd_segments_here, removal_leaves_the_neighbours) {
  add(0, 2, 1);
  add(2, 2, 2);
  add(4, 2, 3);
  ASSERT_TRUE(memory.remove(2 * page, 2 * page));
  EXPECT_TRUE(holds_pattern(pointer(0), 2 * page, 1));
  EXPECT_TRUE(holds_pattern(pointer(4), 2 * page, 3));
  EXPECT_EQ(memory.handles(pointer(0), 6 * page).error(), errc::invalid_range);
  const auto again = add(2, 1, 4);
  EXPECT_EQ(memory.handles(pointer(2), page).value(), std::vector<memfd_handle>{again});
  ASSERT_TRUE(memory.remove(0, 16 * page));  // all at once
  EXPECT_EQ(memory.segments(), 0U);
}

TEST_F(memfd_segments_here, only_what_changed_is_opened_again) {
  add(0, 4, 1);
  add(4, 4, 2);
  add(8, 4, 3);
  ASSERT_TRUE(acquire(0, 12));
  EXPECT_EQ(cache.statistics().opens, 3U);
  ASSERT_TRUE(acquire(1, 10));
  EXPECT_EQ(cache.statistics().opens, 3U);
  add(12, 4, 4);
  ASSERT_TRUE(acquire(0, 16));
  EXPECT_EQ(cache.statistics().opens, 4U);
  ASSERT_TRUE(memory.remove(4 * page, 4 * page));
  add(4, 2, 5);
  add(6, 2, 6);
  const auto held = acquire(0, 16);
  ASSERT_TRUE(held) << describe(held.error());
  EXPECT_EQ(cache.statistics().opens, 6U);
  EXPECT_EQ(held->pieces(), 5U);
  EXPECT_TRUE(holds_pattern(held->at(at(4)).data, 2 * page, 5));
  EXPECT_TRUE(holds_pattern(held->at(at(6)).data, 2 * page, 6));
  EXPECT_TRUE(holds_pattern(held->at(at(8)).data, 4 * page, 3));
}

TEST_F(memfd_segments_here, pieces_are_found_by_address) {
  add(0, 2, 1);
  add(2, 4, 2);
  const auto held = acquire(1, 4);
  ASSERT_TRUE(held) << describe(held.error());
  EXPECT_EQ(held->where(), (range{at(1), at(5)}));
  ASSERT_EQ(held->pieces(), 2U);
  EXPECT_EQ(held->piece(0).where, (range{at(1), at(2)}));
  EXPECT_EQ(held->piece(1).where, (range{at(2), at(5)}));
  EXPECT_EQ(held->piece(2).data, nullptr);
  EXPECT_EQ(held->at(at(3)).where, (range{at(3), at(5)}));
  EXPECT_EQ(held->at(at(3)).data, static_cast<std::byte*>(held->piece(1).data) + page);
  EXPECT_EQ(held->at(at(0)).data, nullptr);
  EXPECT_EQ(held->at(at(5)).data, nullptr);
  EXPECT_TRUE(held->lease_of(1));
  EXPECT_FALSE(held->lease_of(2));
}

TEST_F(memfd_segments_here, all_or_nothing) {
  const auto first = add(0, 2, 1);
  const auto second = add(2, 2, 2);
  ASSERT_TRUE(memory.remove(2 * page, 2 * page));
  const std::array gone{first, second};
  EXPECT_EQ(cache.acquire_segments(peer, gone, at(0), 4 * page).error(), errc::stale_handle);
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.statistics().open, 0U);  // nothing is leased
  const std::array alone{first};
  EXPECT_EQ(cache.acquire_segments(peer, alone, at(0), 3 * page).error(), errc::invalid_range);
  const std::array twice{first, first};
  EXPECT_EQ(cache.acquire_segments(peer, twice, at(0), page).error(), errc::invalid_handle);
  const std::array damaged{first, memfd_handle{}};
  EXPECT_EQ(cache.acquire_segments(peer, damaged, at(0), page).error(), errc::invalid_handle);
  EXPECT_EQ(cache.acquire_segments(peer, {}, at(0), page).error(), errc::invalid_range);
  EXPECT_EQ(cache.acquire_segments(peer, alone, at(0), 0).error(), errc::invalid_range);
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.statistics().open, 0U);  // nothing is leased
}

TEST_F(memfd_segments_here, a_window_makes_segments_adjacent) {
  const auto window = cache.backend().add_window(memory.window());
  ASSERT_TRUE(window) << describe(window.error());
  add(4, 4, 2);
  const auto second = acquire(4, 4);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->data(), static_cast<std::byte*>(*window) + 4 * page);
  add(0, 4, 1);  // later, before its neighbour
  const auto both = acquire(2, 4);
  ASSERT_TRUE(both);
  ASSERT_EQ(both->data(), static_cast<std::byte*>(*window) + 2 * page);
  const auto all = acquire(0, 8);
  ASSERT_TRUE(all);
  EXPECT_TRUE(holds_pattern(all->data(), 4 * page, 1));
  EXPECT_TRUE(holds_pattern(static_cast<std::byte*>(all->data()) + 4 * page, 4 * page, 2));
  EXPECT_EQ(cache.backend().add_window(memory.window()), *window);
  EXPECT_EQ(cache.backend().remove_window(memory.window()).error(), errc::in_use_conflict);
}

TEST_F(memfd_segments_here, a_replaced_segment_leaves_the_others_where_they_are) {
  const auto window = cache.backend().add_window(memory.window());
  ASSERT_TRUE(window);
  add(0, 4, 1);
  add(4, 4, 2);
  auto kept = acquire(0, 4);
  ASSERT_TRUE(kept);
  ASSERT_TRUE(acquire(4, 4));
  ASSERT_TRUE(memory.remove(4 * page, 4 * page));
  add(4, 4, 3);
  const auto both = acquire(0, 8);
  ASSERT_TRUE(both) << describe(both.error());
  EXPECT_EQ(both->data(), *window);
  EXPECT_EQ(kept->data(), *window);
  EXPECT_TRUE(holds_pattern(kept->data(), 4 * page, 1));
  EXPECT_TRUE(holds_pattern(static_cast<std::byte*>(both->data()) + 4 * page, 4 * page, 3));
}

TEST_F(memfd_segments_here, a_leased_old_segment_keeps_its_place) {
  ASSERT_TRUE(cache.backend().add_window(memory.window()));
  add(0, 4, 1);
  auto old = acquire(0, 4);
  ASSERT_TRUE(old);
  ASSERT_TRUE(memory.remove(0, 4 * page));
  add(0, 4, 2);
  EXPECT_EQ(acquire(0, 4).error(), errc::in_use_conflict);
  EXPECT_TRUE(holds_pattern(old->data(), 4 * page, 1));
  EXPECT_TRUE(old->release());
  const auto fresh = acquire(0, 4);
  ASSERT_TRUE(fresh) << describe(fresh.error());
  EXPECT_TRUE(holds_pattern(fresh->data(), 4 * page, 2));
}

TEST_F(memfd_segments_here, windows_are_checked) {
  memfd_importer importer;
  auto window = memory.window();
  EXPECT_EQ(importer.add_window({}).error(), errc::invalid_range);
  EXPECT_EQ(importer.add_window({1, page, page + 1}).error(), errc::invalid_range);
  EXPECT_EQ(importer.add_window({1, 0 - page, 2 * page}).error(), errc::invalid_range);
  EXPECT_EQ(importer.remove_window(window).error(), errc::invalid_argument);
  const auto handle = add(0, 2, 1);
  const auto open = importer.open(peer, handle);
  ASSERT_TRUE(open);
  EXPECT_EQ(importer.add_window(window).error(), errc::in_use_conflict);
  ASSERT_TRUE(importer.close(open->registration));
  ASSERT_TRUE(importer.add_window(window));
  window.size -= page;
  EXPECT_EQ(importer.add_window(window).error(), errc::in_use_conflict);
  EXPECT_EQ(importer.remove_window(window).error(), errc::invalid_argument);
  EXPECT_TRUE(importer.remove_window(memory.window()));
}

TEST_F(memfd_segments_here, memory_of_the_exporter_elsewhere_is_mapped_elsewhere) {
  const auto window = cache.backend().add_window(memory.window());
  ASSERT_TRUE(window);
  auto other = exporter.allocate(page).value();
  const auto held = cache.acquire(peer, other.handle(), other.handle().base, page);
  ASSERT_TRUE(held);
  const auto begin = reinterpret_cast<std::uintptr_t>(*window);
  const auto there = reinterpret_cast<std::uintptr_t>(held->data());
  EXPECT_TRUE(there < begin || there >= begin + memory.size());
}

TEST_F(memfd_segments_here, a_closed_segment_leaves_a_reservation) {
  memfd_importer importer;
  auto* const window = static_cast<std::byte*>(importer.add_window(memory.window()).value());
  const auto open = importer.open(peer, add(2, 2, 1));
  ASSERT_TRUE(open);
  ASSERT_EQ(open->data, window + 2 * page);
  ASSERT_TRUE(importer.close(open->registration));
  void* const taken =
      ::mmap(window, memory.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  EXPECT_EQ(taken, MAP_FAILED);  // all of it still belongs to the window
  EXPECT_EQ(errno, EEXIST);
  unsigned char resident = 0;
  for (std::size_t one = 0; one < 16; ++one) EXPECT_EQ(::mincore(window + one * page, page, &resident), 0) << one;
}

/// A segment whose bytes are written.
struct written_segment {
  memfd_handle handle;
  std::uint32_t seed;
};

TEST_F(memfd_segments_here, segments_change_while_two_threads_import_them) {
  ASSERT_TRUE(cache.backend().add_window(memory.window()));
  std::mutex mutex;
  std::array<written_segment, 8> published{};  // two pages each; without a segment, an empty handle
  std::atomic<bool> done{false};
  std::atomic<unsigned> read{0};
  const auto import = [&](unsigned first) {
    for (unsigned one = first; !done.load(); ++one) {
      std::unique_lock hold(mutex);
      const auto there = published.at(one % published.size());
      hold.unlock();
      if (there.handle == memfd_handle{}) continue;
      const std::array handles{there.handle};
      const auto held = cache.acquire_segments(peer, handles, there.handle.base, 2 * page);
      if (!held) {
        EXPECT_TRUE(held.error() == errc::stale_handle || held.error() == errc::in_use_conflict)
            << describe(held.error());
        continue;
      }
      EXPECT_TRUE(holds_pattern(held->data(), 2 * page, there.seed));
      ++read;
    }
  };
  std::thread left(import, 0);
  std::thread right(import, 3);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  const auto goes_on = [&] {  // longer where the other threads begin late
    const auto now = std::chrono::steady_clock::now();
    return now < end || (read == 0 && now < end + std::chrono::seconds(60));
  };
  for (std::uint32_t seed = 1; goes_on(); ++seed) {
    const auto slot = seed * 5 % published.size();
    std::unique_lock hold(mutex);
    const bool was_there = published.at(slot).handle != memfd_handle{};
    published.at(slot) = {};
    hold.unlock();
    if (was_there) {
      EXPECT_TRUE(memory.remove(2 * slot * page, 2 * page));
    }
    const auto made = add(2 * slot, 2, seed);
    hold.lock();
    published.at(slot) = {made, seed};
  }
  done = true;
  left.join();
  right.join();
  EXPECT_GT(read, 0U);
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.backend().held(), 0U);
}

TEST_F(memfd_segments_here, segments_may_outlive_their_exporter) {
  const auto handle = add(0, 2, 1);
  {
    const auto ended = std::move(exporter);
  }
  EXPECT_EQ(memory.grow(page).error(), errc::closed);
  EXPECT_TRUE(cache.acquire(peer, handle, at(0), page));
  EXPECT_TRUE(memory.remove(0, 2 * page));
  memfd_segments moved = std::move(memory);
  EXPECT_EQ(memory.grow(page).error(), errc::closed);  // NOLINT(bugprone-use-after-move): the subject of the test
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(moved.segments(), 0U);
}

}  // namespace
}  // namespace memfd_segments_test
