// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Many threads on one import cache, with more regions than room, and handles that are replaced meanwhile: no hang, no
/// leak, no wrong byte. The test chooses the driver:
///
///     struct source {              // a driver and its exporters, with `arena_slots` places whose buffers are replaced
///       using importer_type = my_importer;
///       using handle = my_handle;
///       importer_type importer();
///       handle replace(std::size_t slot, std::uint64_t size);       // what the slot had is freed; one at a time
///       void make_it_fail();                                        // now and then, from now on, unless `spared`
///       void heal();
///       bool holds(const handle& of, const void* data);             // whether these are the bytes of that buffer
///       std::size_t open_count(import_cache<importer_type>& cache);   // in the driver
///     };
#pragma once

#include "support/cache_checks.hpp"
#include "support/settings.hpp"
#include "support/short_lived_cache.hpp"
#include "support/watchdog.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing {

inline constexpr std::size_t arena_slots = 64;
inline constexpr std::size_t arena_room = 24;
inline constexpr std::uint64_t arena_unit = 4096;

/// While this is set, no driver call of this thread is made to fail.
inline thread_local bool spared = false;

template <class Source>
class import_arena {
 public:
  using cache_type = import_cache<typename Source::importer_type>;
  using lease = typename cache_type::lease;
  using handle = typename Source::handle;

  import_arena(Source& source, const cache_options& options) : source_(source), cache(source.importer(), options) {
    for (std::size_t i = 0; i < arena_slots; ++i) current_[i] = source_.replace(i, 4 * arena_unit);
  }

  /// Does one random thing that a user's thread could do.
  void act(std::mt19937_64& random, std::vector<std::pair<handle, lease>>& mine) {
    if (random() % 16 == 0) return use_other(random);
    const auto dice = random() % 1000;
    if (dice < 560) return acquire(random, mine);
    if (dice < 900) return drop_one(random, mine);
    if (dice < 940) return hand_over(mine);
    if (dice < 970) return replace(random);
    const auto peer = peer_id{random() % 2};
    if (dice < 985) return invalidate(random);
    if (dice < 990) return static_cast<void>(cache.progress());
    if (dice < 993) return static_cast<void>(cache.flush());
    if (dice < 996) return static_cast<void>(cache.drop_peer(peer));
    if (dice < 998) return static_cast<void>(cache.dump());
    expect_now(cache.statistics());
  }

  void print() {
    std::fprintf(stderr, "%s\n", describe(cache.statistics()).c_str());
    for (const auto& e : cache.dump())
      std::fprintf(stderr, "peer %llu [%#lx,%#lx) %s leases=%llu thread=%d\n",
                   static_cast<unsigned long long>(e.peer.value), e.covered.begin, e.covered.end, name_of(e.state),
                   static_cast<unsigned long long>(e.leases), e.owner);
  }

  void finish() {
    passed_on_.clear();
    other_.reset();
    source_.heal();
    const auto flushed = cache.flush();
    EXPECT_TRUE(flushed);
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open, 0U);
    EXPECT_EQ(now.entries_now, 0U);
    EXPECT_EQ(now.bytes_now, 0U);
    EXPECT_EQ(now.bypass_bytes, 0U);
    EXPECT_EQ(now.leases_now, 0U);
    EXPECT_LE(now.peak_entries, arena_room);
    EXPECT_EQ(source_.open_count(cache), 0U);
    EXPECT_EQ(wrong_bytes, 0U);
    EXPECT_GT(now.hits, 0U);
    EXPECT_GT(now.evicted + now.misses, 0U);
    EXPECT_GT(now.invalid + now.misses_invalidated, 0U) << "handles must have been replaced";
    std::printf("%s\n", describe(now).c_str());
  }

  std::atomic<std::size_t> wrong_bytes{0};
  std::atomic<std::size_t> unexpected{0};

 private:
  void expect_now(const statistics& now) {
    if (now.entries_now > arena_room) ++unexpected;
  }

  bool right(const handle& of, const lease& held) { return source_.holds(of, held.data()); }

  void acquire(std::mt19937_64& random, std::vector<std::pair<handle, lease>>& mine) {
    handle wanted;
    const auto slot = random() % arena_slots;
    {
      std::lock_guard guard(places_);
      wanted = current_[slot];
    }
    auto got = cache.acquire({slot % 2}, wanted, wanted.base, wanted.size);
    if (!got) {
      using enum errc;
      const auto code = got.error().code;
      if (code != stale_handle && code != in_use_conflict && code != over_budget && code != out_of_resources &&
          code != driver_error && code != timed_out && code != peer_gone) {
        ++unexpected;
        std::fprintf(stderr, "unexpected: %s\n", describe(got.error()).c_str());
      }
      return;
    }
    if (!right(wanted, *got)) ++wrong_bytes;
    mine.emplace_back(wanted, std::move(*got));
    if (mine.size() > 3) drop_one(random, mine);
  }

  // A driver that maps memory once may refuse the second cache's open, since the first cache has it open. Only the
  // bytes of its hits are checked.
  void use_other(std::mt19937_64& random) {
    if (random() % 64 == 0) {
      spared = true;  // a registration that cannot be closed at a cache's end stays open
      other_->renew([] {});
      spared = false;
      return;
    }
    handle wanted;
    const auto slot = random() % arena_slots;
    {
      std::lock_guard guard(places_);
      wanted = current_[slot];
    }
    other_->use([&](auto& beside) {
      for (int n = 0; n < 2; ++n)
        if (auto got = beside.acquire({slot % 2}, wanted, wanted.base, wanted.size); got && !right(wanted, *got))
          ++wrong_bytes;
    });
  }

  void invalidate(std::mt19937_64& random) {
    const auto slot = random() % arena_slots;
    std::uint64_t begin = 0;
    {
      std::lock_guard guard(places_);
      begin = current_[slot].base;
    }
    cache.invalidate({slot % 2}, {begin, begin + 1 + random() % (64 * arena_unit)});
  }

  void drop_one(std::mt19937_64& random, std::vector<std::pair<handle, lease>>& mine) {
    if (mine.empty()) return;
    const auto at = mine.begin() + static_cast<std::ptrdiff_t>(random() % mine.size());
    if (!right(at->first, at->second)) ++wrong_bytes;
    mine.erase(at);
  }

  void hand_over(std::vector<std::pair<handle, lease>>& mine) {
    std::vector<lease> released_here;
    {
      std::lock_guard guard(places_);
      released_here.swap(passed_on_);
      if (!mine.empty()) {
        passed_on_.push_back(std::move(mine.back().second));
        mine.pop_back();
      }
    }
  }

  void replace(std::mt19937_64& random) {
    std::lock_guard guard(places_);
    const auto slot = random() % arena_slots;
    current_[slot] = source_.replace(slot, arena_unit * (1 + random() % 4));
  }

  Source& source_;
  std::mutex places_;
  std::array<handle, arena_slots> current_;
  std::vector<lease> passed_on_;
  std::optional<short_lived_cache<cache_type>> other_{
      std::in_place,
      [this] { return std::make_unique<cache_type>(source_.importer(), cache_options{.max_count = 4}); }};

 public:
  cache_type cache;
};

template <class Source>
void run_arena(const cache_options& options, std::uint64_t threads, std::chrono::milliseconds time) {
  Source source;
  import_arena<Source> all(source, options);
  source.make_it_fail();
  watchdog guard(std::chrono::seconds(30), [&] { all.print(); });
  const auto end = std::chrono::steady_clock::now() + time;
  std::vector<std::thread> workers;
  for (std::uint64_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      auto random = std::mt19937_64(test_seed() * 1000 + i);
      std::vector<std::pair<typename Source::handle, typename import_arena<Source>::lease>> mine;
      while (std::chrono::steady_clock::now() < end) {
        for (int n = 0; n < 64; ++n) all.act(random, mine);
        guard.beat();
      }
    });
  for (auto& one : workers) one.join();
  all.finish();
  EXPECT_EQ(all.unexpected, 0U);
}

template <class Source>
void run_in_every_mode() {
  const auto each = std::chrono::milliseconds(stress_time()) / 8;
  for (const std::uint64_t threads : {2U, 8U})
    for (const bool retain : {true, false})
      for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
        SCOPED_TRACE(::testing::Message() << threads << " threads, retain " << retain);
        cache_options options{.retain = retain, .max_count = arena_room, .closes = closes};
        options.full = retain ? when_full::fail : when_full::wait;
        options.full_timeout = std::chrono::milliseconds(20);
        options.conflict_timeout = std::chrono::milliseconds(threads == 2 ? 0 : 1);
        options.wait_timeout = std::chrono::milliseconds(500);
        options.idle_timeout = std::chrono::milliseconds(retain ? 20 : 0);  // all the time
        options.reaper = closes == close_policy::deferred && retain;
        run_arena<Source>(options, threads, each);
      }
}

}  // namespace pinfold::testing
