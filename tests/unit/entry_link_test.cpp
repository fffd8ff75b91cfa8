// SPDX-License-Identifier: BSD-3-Clause
// Links between entries of many pages, also in a child of fork(2), and the memory of those pages.
#include "index/entry_list.hpp"
#include "os/page_bytes.hpp"
#include "support/fixtures/pooled_entries.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sys/mman.h>
#include <vector>

namespace pinfold::index::entry_link_test {
namespace {

using entries = std::vector<testing::pooled_entries::owned>;

void add_some(testing::pooled_entries& pool, entries& to) {
  constexpr std::size_t in_several_mappings = 5000;
  for (std::size_t i = 0; i < in_several_mappings; ++i) to.push_back(pool.make({1}, {0x1000, 0x2000}));
}

void expect_linked(const entries& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i]->previous.get(), i == 0 ? nullptr : all[i - 1].get());
    ASSERT_EQ(all[i]->next.get(), i + 1 == all.size() ? nullptr : all[i + 1].get());
  }
}

TEST(entry_link, leads_to_entries_of_every_page) {
  testing::pooled_entries pool;
  entries all;
  add_some(pool, all);
  entry_list list(list_id::reusable);
  for (const auto& one : all) list.push_back(one.get());
  expect_linked(all);
  for (const auto& one : all) {
    ASSERT_EQ(list.front(), one.get());
    list.remove(one.get());
  }
  EXPECT_TRUE(list.empty());
}

TEST(entry_link, child_of_fork_links_its_entries_with_its_parents) {
  testing::pooled_entries pool;
  entries all;
  add_some(pool, all);
  entry_list list(list_id::reusable);
  for (const auto& one : all) list.push_back(one.get());
  testing::run_in_child([&] {
    testing::pooled_entries more;
    entries grown = std::move(all);
    const auto before = grown.size();
    add_some(more, grown);
    for (auto i = before; i < grown.size(); ++i) list.push_back(grown[i].get());
    expect_linked(grown);
    for (const auto& one : grown) list.remove(one.get());
  });
  for (const auto& one : all) list.remove(one.get());
}

bool is_resident(const void* at) {
  const auto page = os::page_bytes();
  unsigned char resident = 1;
  void* const from = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) / page * page);
  return ::mincore(from, page, &resident) == 0 && (resident & 1) != 0;
}

TEST(entry_memory, of_a_large_pool_goes_back_to_the_kernel_and_is_used_again) {
  if (os::page_bytes() * 4 != record_page::bytes) GTEST_SKIP() << "a page of records has no inner pages here";
  std::vector<const void*> inside;
  for (int round = 0; round < 2; ++round) {
    testing::pooled_entries pool;
    entries all;
    for (int i = 0; i < 10; ++i) add_some(pool, all);
    for (const auto& one : all) ASSERT_EQ(one->covered(), (range{0x1000, 0x2000}));
    inside.clear();
    for (const auto& one : all) {
      const auto in_page = reinterpret_cast<std::uintptr_t>(one.get()) % record_page::bytes;
      if (in_page / os::page_bytes() == 2) inside.push_back(one.get());
    }
    ASSERT_GT(inside.size(), 10'000U);
  }
  const auto kept = static_cast<std::size_t>(std::ranges::count_if(inside, is_resident));
  EXPECT_LT(kept, inside.size() / 4) << "of " << inside.size();
}

}  // namespace
}  // namespace pinfold::index::entry_link_test
