// SPDX-License-Identifier: BSD-3-Clause
// Random histories of a pool, compared with a list of its allocations: R50.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/settings.hpp"

#include <pinfold/pools/registered_pool.hpp>

#include <algorithm>
#include <bit>
#include <map>
#include <random>

namespace pinfold::testing::pool_model_test {
namespace {

constexpr std::size_t slab_bytes = 64 * 1024;

/// Fills every allocation with its number: a byte that two allocations share, or that moves, is detected.
class history {
 public:
  history(std::uint64_t seed, bool clear)
      : random_(seed), clear_(clear), pool_(f_.cache, {.slab_bytes = slab_bytes, .clear = clear}) {}

  void step() {
    const auto kind = below(100);
    if (kind < 45 && out_.size() < 200) return allocate();
    if (kind < 50) return lease();
    if (kind < 53) return leases_.clear();
    if (out_.empty()) return;
    auto at = out_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(out_.size())));
    if (kind < 60) return resize(at->second);
    if (kind < 62) return trim();
    deallocate(at);
  }

  void compare() {
    const auto now = pool_.usage();
    ASSERT_EQ(now.allocations, out_.size());
    ASSERT_EQ(now.misuses, 0U);
    std::size_t least = 0;
    for (const auto& [begin, one] : out_) least += one.bytes;
    ASSERT_GE(now.used, least);
    ASSERT_GE(now.bytes, now.used);
    ASSERT_EQ(now.slabs, f_.device->open_count());
  }

  void finish() {
    leases_.clear();
    while (!out_.empty()) deallocate(out_.begin());
    ASSERT_EQ(pool_.usage().used, 0U);
    const auto all = pool_.usage().bytes;
    ASSERT_EQ(pool_.trim(), all);
    ASSERT_EQ(f_.device->open_count(), 0U);
  }

 private:
  struct block {
    unsigned char* data;
    std::size_t bytes;
    unsigned char mark;
  };

  std::size_t below(std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most - 1)(random_); }
  std::size_t some_size() { return below(8) == 0 ? below(4 * slab_bytes) : below(std::size_t{1} << below(14)); }
  void fill(const block& one, std::size_t from) { std::fill(one.data + from, one.data + one.bytes, one.mark); }

  void allocate() {
    const std::size_t bytes = some_size();
    const std::size_t alignment = std::size_t{1} << below(17);
    auto got = pool_.allocate_registered(bytes, alignment);
    ASSERT_TRUE(got) << describe(got.error());
    block one{static_cast<unsigned char*>(got->data), bytes, static_cast<unsigned char>(1 + below(255))};
    const auto begin = reinterpret_cast<std::uintptr_t>(got->data);
    ASSERT_EQ(begin % alignment, 0U);
    expect_apart(begin, bytes);
    ASSERT_TRUE(f_.device->now().at(got->registration.key).memory.contains({begin, begin + bytes}));
    if (clear_) {
      ASSERT_EQ(std::count(one.data, one.data + bytes, 0), static_cast<std::ptrdiff_t>(bytes));
    }
    fill(one, 0);
    out_.emplace(begin, one);
  }

  void expect_apart(std::uintptr_t begin, std::size_t bytes) {
    const auto behind = out_.lower_bound(begin);
    if (behind != out_.end()) {
      ASSERT_LE(begin + std::max<std::size_t>(bytes, 1), behind->first);
    }
    if (behind != out_.begin()) {
      const auto& before = *std::prev(behind);
      ASSERT_LE(before.first + std::max<std::size_t>(before.second.bytes, 1), begin);
    }
  }

  void expect_intact(const block& one, std::size_t bytes) {
    ASSERT_EQ(std::count(one.data, one.data + bytes, one.mark), static_cast<std::ptrdiff_t>(bytes));
  }

  void resize(block& one) {
    const std::size_t wanted = some_size();
    const std::size_t old = one.bytes;
    if (!pool_.try_expand(one.data, old, wanted)) return;
    one.bytes = wanted;
    expect_intact(one, std::min(old, wanted));
    const auto behind = out_.upper_bound(reinterpret_cast<std::uintptr_t>(one.data));
    if (behind != out_.end()) {
      ASSERT_LE(one.data + wanted, behind->second.data);
    }
    if (wanted > old) fill(one, old);
  }

  void deallocate(std::map<std::uintptr_t, block>::iterator at) {
    expect_intact(at->second, at->second.bytes);
    ASSERT_TRUE(pool_.try_deallocate(at->second.data, at->second.bytes));
    out_.erase(at);
  }

  void lease() {
    if (out_.empty()) return;
    auto held = pool_.lease(out_.begin()->second.data);
    ASSERT_TRUE(held);
    leases_.push_back(std::move(*held));
  }

  void trim() {
    const auto before = pool_.usage().bytes;
    const auto freed = pool_.trim();
    ASSERT_EQ(pool_.usage().bytes, before - freed);
  }

  std::mt19937_64 random_;
  bool clear_;
  local_fixture<> f_;
  registered_pool<fake_registrar> pool_;
  std::vector<pool_lease<fake_registrar>> leases_;
  std::map<std::uintptr_t, block> out_;
};

TEST(pool_model, R50_agrees_with_a_list_after_every_step) {
  constexpr std::uint64_t length = 2000;
  const auto histories = std::max<std::uint64_t>(model_steps() / length, 2);
  for (std::uint64_t i = 0; i < histories; ++i) {
    history run(test_seed() + i, i % 2 == 0);
    for (std::uint64_t step = 0; step < length; ++step) {
      run.step();
      run.compare();
      if (HasFatalFailure()) FAIL() << "history " << i << ", step " << step << ", PINFOLD_TEST_SEED=" << test_seed();
    }
    run.finish();
    if (HasFatalFailure()) FAIL() << "end of history " << i << ", PINFOLD_TEST_SEED=" << test_seed();
  }
}

}  // namespace
}  // namespace pinfold::testing::pool_model_test
