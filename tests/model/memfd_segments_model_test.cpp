// SPDX-License-Identifier: BSD-3-Clause
// Random segments come, go and are replaced under one range, and random parts of it are imported by two caches, with a
// window and without: every byte is that of the newest segment, and only what changed is opened.
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>

#include "os/page_bytes.hpp"
#include "support/host/pattern.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <set>

namespace memfd_segments_model_test {
namespace {

using namespace pinfold;
using namespace pinfold::testing;

constexpr std::size_t pages = 24;

unsigned number_or(const char* name, unsigned otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}

struct oracle_segment {
  std::size_t count;
  std::uint32_t seed;
  memfd_handle handle;
};

class segments_model : public ::testing::Test {
 protected:
  /// Returns the segment that contains the page; the end if none does.
  [[nodiscard]] auto at(std::size_t number) const {
    auto after = all.upper_bound(number);
    if (after == all.begin()) return all.end();
    --after;
    return number < after->first + after->second.count ? after : all.end();
  }
  [[nodiscard]] bool is_free(std::size_t first, std::size_t count) const {
    for (auto one = first; one < first + count; ++one)
      if (at(one) != all.end()) return false;
    return first + count <= pages;
  }
  [[nodiscard]] std::byte* pointer(std::size_t number) const { return memory.data() + number * page; }
  [[nodiscard]] std::size_t below(std::size_t most) { return random() % most; }

  void add() {
    const auto first = below(pages);
    const auto count = 1 + below(4);
    const auto made = memory.add(first * page, count * page);
    ASSERT_EQ(made.has_value(), is_free(first, count));
    if (!made) return;
    const auto seed = static_cast<std::uint32_t>(random());
    write_pattern(pointer(first), count * page, seed);
    all[first] = {count, seed, *made};
  }
  void remove() {
    const auto first = below(pages);
    const auto count = std::min(1 + below(8), pages - first);
    const auto begin = all.lower_bound(first);
    const auto end = all.lower_bound(first + count);
    const bool cuts_first = first != 0 && begin != all.begin() && at(first) != all.end() && at(first)->first != first;
    const bool cuts_last = begin != end && std::prev(end)->first + std::prev(end)->second.count > first + count;
    const auto done = memory.remove(first * page, count * page);
    ASSERT_EQ(done.has_value(), begin != end && !cuts_first && !cuts_last);
    if (done) all.erase(begin, end);
  }
  void import(import_cache<memfd_importer>& cache, std::set<std::uint64_t>& open, std::byte* window) {
    const auto first = below(pages);
    const auto count = std::min(1 + below(12), pages - first);
    const auto handles = memory.handles(pointer(first), count * page);
    bool whole = true;
    for (auto one = first; one < first + count; ++one) whole = whole && at(one) != all.end();
    ASSERT_EQ(handles.has_value(), whole);
    if (!handles) return;
    const auto before = cache.statistics().opens;
    std::size_t fresh = 0;
    for (const auto& one : *handles) fresh += open.insert(one.serial).second ? 1 : 0;
    const auto held =
        cache.acquire_segments({1}, *handles, reinterpret_cast<std::uintptr_t>(pointer(first)), count * page);
    ASSERT_TRUE(held) << describe(held.error());
    EXPECT_EQ(cache.statistics().opens - before, fresh) << "only what was not open is opened";
    EXPECT_EQ(held->pieces(), handles->size());
    if (window != nullptr) {
      ASSERT_EQ(held->data(), window + first * page);
    }
    for (auto one = first; one < first + count; ++one) {
      const auto address = reinterpret_cast<std::uintptr_t>(pointer(one));
      const auto* const bytes = static_cast<const std::byte*>(held->at(address).data);
      const auto& there = *at(one);
      const auto inside = (one - there.first) * page;
      ASSERT_EQ(bytes[0], pattern_byte(there.second.seed, inside));
      ASSERT_EQ(bytes[page - 1], pattern_byte(there.second.seed, inside + page - 1));
    }
  }

  const std::size_t page = os::page_bytes();
  const unsigned first_seed = number_or("PINFOLD_TEST_SEED", std::random_device{}());
  std::mt19937 random{first_seed};
  memfd_exporter exporter = memfd_exporter::create().value();
  memfd_segments memory = exporter.reserve(pages * page).value();
  std::map<std::size_t, oracle_segment> all;
};

TEST_F(segments_model, agrees_with_the_oracle_after_every_step) {
  SCOPED_TRACE("PINFOLD_TEST_SEED=" + std::to_string(first_seed));
  import_cache<memfd_importer> windowed{memfd_importer()};
  import_cache<memfd_importer> plain{memfd_importer()};
  auto* const window = static_cast<std::byte*>(windowed.backend().add_window(memory.window()).value());
  std::set<std::uint64_t> in_windowed;
  std::set<std::uint64_t> in_plain;
  const auto steps = number_or("PINFOLD_TEST_STEPS", 100'000) / 10;
  for (unsigned step = 0; step < steps && !HasFatalFailure(); ++step) {
    switch (below(5)) {
      case 0:
      case 1: add(); break;
      case 2: remove(); break;
      case 3: import(windowed, in_windowed, window); break;
      default: import(plain, in_plain, nullptr); break;
    }
    ASSERT_EQ(memory.segments(), all.size());
  }
  EXPECT_TRUE(windowed.flush());
  EXPECT_TRUE(plain.flush());
  EXPECT_TRUE(windowed.backend().remove_window(memory.window()));
  EXPECT_EQ(windowed.backend().held(), 0U);
  EXPECT_EQ(plain.backend().held(), 0U);
}

}  // namespace
}  // namespace memfd_segments_model_test
