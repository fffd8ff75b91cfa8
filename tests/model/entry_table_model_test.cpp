// SPDX-License-Identifier: BSD-3-Clause
// The entry table, without an engine, driver or threads, against a list: what requests may find, what is counted, and
// where each entry stands. In sanitizer builds the table checks itself at each transition.
#include "core/entry_table_open.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pinfold::testing::entry_table_model_test {
namespace {

using core::counter;
using detail::record;
using index::entry;

constexpr std::uintptr_t page = 4096;
constexpr std::uintptr_t pages = 256;
constexpr std::size_t budget_bytes = 100 * page;
constexpr std::size_t budget_count = 40;

/// A table with all that an engine gives it.
struct table_parts {
  index::control_block* owner = index::take_control_block();
  std::atomic<std::uint64_t> generation{0};
  detail::hit_view view{&generation, &generation, 0, 1U << record::cache_shift, 1, 12, 0};
  index::hit_table hits{false};
  std::atomic<bool> hits_need_the_mutex{false};
  index::entry_pool pool{*owner, false};
  core::budget room{budget_bytes, budget_count, 1};
  core::guarded_counters counts;
  core::pending_invalidations pending;
  core::entry_table table{driver(), {}, {hits, view, hits_need_the_mutex, pool, room.of(0), counts, nullptr}};

  ~table_parts() { index::give_back(owner); }

  static detail::driver driver() noexcept {
    return {nullptr, "none", 0, sizeof(std::uint64_t), true, nullptr, nullptr, nullptr};
  }
  void provide() {
    if (const auto step = hits.wants(); step != 0) table.grow_hit_table(index::hit_table::memory(step));
    if (pool.empty()) pool.adopt(index::entry_pool::make_chunk(sizeof(record) + sizeof(std::uint64_t)));
    while (!table.index_ready() || table.wants_room_apart())
      table.adopt(index::range_index::make_chunk(table.next_index_chunk()));
    if (!table.ready()) throw std::bad_alloc();
  }
};

/// What the list knows of an entry that is open.
struct known {
  entry* one;
  range where;
  bool findable = true;
  std::int64_t leases = 0;
};

class entry_table_model : public ::testing::Test {
 protected:
  void step() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3: return request();
      case 4:
      case 5: return release();
      case 6: return evict();
      case 7: return invalidate();
      case 8: return close_one();
      default: return unpersist();
    }
  }

  void agree() {
    ASSERT_TRUE(table_.settled());
    std::size_t open = 0;
    std::size_t bytes = 0;
    std::size_t open_not_hittable = 0;
    bool in_ring = false;
    table_.for_each([&](const entry& one) {
      ++open;
      bytes += one.bytes;
      const bool in_use = one.now() == entry_state::live || one.now() == entry_state::evicting;
      open_not_hittable += in_use && !one.hot()->is(record::hittable) ? 1 : 0;
      EXPECT_EQ(one.findable(), find(one).findable);
      EXPECT_EQ(one.pins(), find(one).leases);
      EXPECT_TRUE(one.now() != entry_state::evicting || one.pins() == 0);
      EXPECT_TRUE(one.in != index::list_id::leased || one.pins() > 0);
      EXPECT_TRUE(!one.apart || !one.findable());
      in_ring = in_ring || one.in == index::list_id::reusable;
    });
    EXPECT_NE(table_.all_set_aside(), in_ring);
    EXPECT_EQ(open, open_.size());
    EXPECT_EQ(parts_.room.count_now(), open_.size());
    EXPECT_EQ(parts_.room.bytes_now(), bytes);
    EXPECT_EQ(table_.open_not_hittable(), open_not_hittable);
    EXPECT_EQ(table_.openings() + table_.opens_in_driver() + table_.closes_in_flight(), 0U);
  }

  void finish() {
    for (auto& one : open_) one.one->own_pins().fetch_sub(static_cast<std::int32_t>(std::exchange(one.leases, 0)));
    table_.stop_all_hits();
    table_.resume_hits();
    table_.end();
    table_.queue_released();
    table_.prepare_final_close();
    while (!open_.empty()) {
      close_one();
      ASSERT_EQ(table_.size(), open_.size());
    }
    EXPECT_EQ(parts_.room.bytes_now(), 0U);
    EXPECT_EQ(table_.open_not_hittable(), 0U);
  }

  std::vector<known> open_;

 private:
  known& find(const entry& one) {
    const auto found = std::ranges::find(open_, &one, &known::one);
    if (found == open_.end()) throw std::logic_error("an entry that was closed is in the index");
    return *found;
  }
  range some_range() {
    const auto begin = random_() % pages;
    return {begin * page, std::min(pages, begin + 1 + random_() % 8) * page};
  }

  void request() {
    detail::request what;
    what.wanted = some_range();
    what.persistent = random_() % 20 == 0;
    what.unshared = random_() % 20 == 0;
    parts_.provide();
    if (random_() % 4 == 0) table_.set_held_apart();
    core::lookup_result seen;
    if (!what.unshared) table_.scan(what, what.wanted, seen);
    const bool expected =
        std::ranges::any_of(open_, [&](const known& one) { return one.findable && one.where.contains(what.wanted); });
    ASSERT_EQ(seen.match != nullptr, expected && !what.unshared);
    if (seen.match == nullptr) return open(what, seen);
    table_.hit(*seen.match, what);
    ++find(*seen.match).leases;
  }

  void open(const detail::request& what, core::lookup_result& seen) {
    entry& fresh = table_.claim(what, {what.wanted, what.need, true}, seen, parts_.pending).one;
    const auto bytes = what.wanted.size();
    const bool has_room = parts_.room.bytes_now() + bytes <= budget_bytes && parts_.room.count_now() < budget_count;
    ASSERT_EQ(table_.take_room(fresh, bytes, 1), has_room);
    if (!has_room || random_() % 8 == 0) {
      table_.fail(fresh);
      return table_.recycle(fresh);
    }
    table_.enter_driver(fresh);
    if (random_() % 16 == 0) table_.make_unshared(fresh), table_.leave_driver(fresh);
    if (fresh.in_driver) table_.leave_driver(fresh);
    open_.push_back({&fresh, what.wanted, false});
    if (random_() % 16 == 0) return table_.quarantine_opened(fresh);
    fresh.own_pins().fetch_add(1);
    open_.back().leases = 1;
    open_.back().findable = !fresh.doomed;
    const bool hides_others = !fresh.doomed && fresh.near;
    table_.publish(fresh, *fresh.hot(), {what.wanted, nullptr, bytes, {}});
    table_.settle();
    for (auto& one : open_) {
      const bool persistent = one.one->persistent;
      const bool lesser = hides_others && one.one != &fresh && !persistent && what.wanted.contains(one.where);
      one.findable = one.findable && !lesser;
    }
  }

  void release() {
    if (open_.empty()) return;
    known& chosen = open_[random_() % open_.size()];
    if (chosen.leases == 0) return;
    --chosen.leases;
    chosen.one->own_pins().fetch_sub(1);
    if (chosen.one->in == index::list_id::leased) table_.put_back(*chosen.one);
    if (chosen.leases == 0 && chosen.one->in == index::list_id::held) table_.queue(*chosen.one);
  }

  // A release before the barrier may not have seen that its entry was set aside.
  void set_leases_aside() {
    std::vector<const known*> before;
    for (const auto& one : open_)
      if (one.one->in == index::list_id::leased) before.push_back(&one);
    table_.begin_evict_victims(16, 2);
    for (auto& one : open_) {
      const bool fresh = one.one->in == index::list_id::leased && std::ranges::find(before, &one) == before.end();
      if (!fresh || random_() % 4 != 0) continue;
      one.one->own_pins().fetch_sub(static_cast<std::int32_t>(std::exchange(one.leases, 0)));
    }
  }

  // A hit may have pinned an entry before the barrier.
  void settle_after_late_hits() {
    for (auto& one : open_) {
      const bool unsettled = one.one->in == index::list_id::chosen || one.one->in == index::list_id::retired;
      if (!unsettled || random_() % 8 != 0) continue;
      one.one->own_pins().fetch_add(1);
      ++one.leases;
    }
    table_.settle();
  }

  void evict() {
    random_() % 4 == 0 ? table_.begin_evict_unpinned() : set_leases_aside();
    settle_after_late_hits();
    if (random_() % 4 == 0) table_.revive_all_but_a_batch();
  }

  void invalidate() {
    const auto gone = some_range();
    range left = gone;
    std::array<entry*, 4> some{};
    while (!left.empty()) static_cast<void>(table_.invalidate_next({}, left, some));
    settle_after_late_hits();
    for (auto& one : open_) {
      if (!one.where.overlaps(gone)) continue;
      one.findable = false;
      if (one.leases > 0 && one.one->now() != entry_state::quarantined) {
        EXPECT_TRUE(one.one->hot()->is(record::stale));
      }
    }
  }

  void close_one() {
    entry* closable = table_.first_due();
    if (closable == nullptr) closable = table_.first_evicting();
    if (closable == nullptr) closable = table_.first_quarantined();
    if (closable == nullptr) return;
    static_cast<void>(table_.begin_close(*closable));
    if (random_() % 8 == 0) {
      find(*closable).findable = false;
      return table_.quarantine(*closable);
    }
    table_.finish_close(*closable);
    std::erase_if(open_, [&](const known& one) { return one.one == closable; });
  }

  void unpersist() { static_cast<void>(table_.unpersist_next({}, some_range())); }

  table_parts parts_;
  core::entry_table& table_ = parts_.table;
  std::mt19937_64 random_{test_seed()};
};

TEST_F(entry_table_model, table_agrees_with_a_list) {
  for (std::uint64_t at = 0; at < model_steps(); ++at) {
    step();
    if (at % 16 == 0) agree();
    ASSERT_FALSE(HasFailure()) << "step " << at;
  }
  finish();
}

}  // namespace
}  // namespace pinfold::testing::entry_table_model_test
