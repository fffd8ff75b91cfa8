// SPDX-License-Identifier: BSD-3-Clause
// Threads that register overlapping memory while others replace it, in two caches, one of which is destroyed and made
// again: no stale registration, no hang, no leak.
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/short_lived_cache.hpp"
#include "support/host/act.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/monitors/announce.hpp>

#include <array>
#include <random>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace pinfold::testing::local_cache_stress_test {
namespace {

constexpr std::size_t pages = 64;
constexpr std::uintptr_t base = 0x10000000;
constexpr std::size_t room = 12;

/// Memory whose pages are replaced now and then. A thread that uses a page prevents its replacement, as a program must.
struct replaceable_memory {
  std::array<std::shared_mutex, pages> in_use;
  std::array<std::atomic<std::uint64_t>, pages> version{};
};

/// A registrar that records which version of each page it has registered.
class versioned_registrar : public fake_group_registrar {
 public:
  struct seen {
    std::array<std::uint64_t, pages> version{};
  };
  struct ledger {
    std::mutex mutex;
    std::map<std::uint64_t, seen> by_key;
  };

  versioned_registrar(std::shared_ptr<fake_device> device, replaceable_memory& memory, std::shared_ptr<ledger> kept)
      : fake_group_registrar(std::move(device)), memory_(&memory), ledger_(std::move(kept)) {}

  [[nodiscard]] result<registration_type> open(range asked, access_flags access) noexcept {
    const auto now = look();
    auto made = fake_group_registrar::open(asked, access);
    if (made) note(made->key, now);
    return made;
  }
  void open_many(std::span<const range> asked, access_flags access,
                 std::span<result<registration_type>> made) noexcept {
    const auto now = look();
    fake_group_registrar::open_many(asked, access, made);
    for (const auto& one : made)
      if (one) note(one->key, now);
  }

 private:
  [[nodiscard]] seen look() const {
    seen now;
    for (std::size_t i = 0; i < pages; ++i) now.version[i] = memory_->version[i].load();
    return now;
  }
  void note(std::uint64_t key, const seen& now) {
    std::lock_guard guard(ledger_->mutex);
    ledger_->by_key[key] = now;
  }

  replaceable_memory* memory_;
  std::shared_ptr<ledger> ledger_;
};

class arena {
 public:
  /// `page`: the size of what is replaced at a time.
  arena(const cache_options& options, std::uintptr_t page_bytes)
      : page(page_bytes),
        shards(options.shards),
        device(std::make_shared<fake_device>()),
        kept(std::make_shared<versioned_registrar::ledger>()),
        cache(versioned_registrar(device, memory, kept), keeping(options)) {
    device->capacity = room - 2;
  }

  void act(std::mt19937_64& random) {
    const auto first = random() % pages;
    const auto count = std::min<std::size_t>(1 + random() % 6, pages - first);
    if (random() % 8 == 0) return use_other(random, first, count);
    const auto dice = random() % 100;
    if (dice < 75) return use(random, first, count);
    if (dice < 92) return replace(first);
    if (dice < 96) return use_batch(first, count);
    static_cast<void>(dice < 98 ? cache.progress() : cache.flush());
  }

  void finish() {
    const auto flushed = cache.flush();
    EXPECT_TRUE(flushed);
    const auto now = cache.statistics();
    expect_nothing_open(now);
    EXPECT_LE(now.peak_entries, room);
    EXPECT_EQ(device->open_count(), 0U);
    EXPECT_EQ(device->misuses, 0U);
    EXPECT_EQ(stale, 0U);
    EXPECT_EQ(unexpected, 0U);
    other.renew([this] { expect_ended(); });
    EXPECT_GT(now.hits, 0U);
    EXPECT_GT(now.misses_invalidated, 0U);
    std::printf("%s\n", describe(now).c_str());
  }
  void print() {
    std::fprintf(stderr, "%s\n", describe(cache.statistics()).c_str());
    for (const auto& e : cache.dump())
      std::fprintf(stderr, "[%#lx,%#lx) %s leases=%llu thread=%d\n", e.covered.begin, e.covered.end, name_of(e.state),
                   static_cast<unsigned long long>(e.leases), e.owner);
  }

  std::atomic<std::size_t> stale{0};
  std::atomic<std::size_t> unexpected{0};

 private:
  using lease = pinfold::cache<versioned_registrar>::lease;

  class claim {
   public:
    claim(replaceable_memory& memory, std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) locks_.emplace_back(memory.in_use[i]);
    }

   private:
    std::vector<std::shared_lock<std::shared_mutex>> locks_;
  };

  void check(const lease& held, std::size_t first, std::size_t count) {
    versioned_registrar::seen seen;
    {
      std::lock_guard guard(kept->mutex);
      seen = kept->by_key[held.registration().key];
    }
    for (std::size_t i = first; i < first + count; ++i)
      if (seen.version[i] != memory.version[i].load()) ++stale;
  }

  void refused(const error& why) {
    if (why.code == errc::over_budget || why.code == errc::out_of_resources || why.code == errc::timed_out) return;
    ++unexpected;
    std::fprintf(stderr, "unexpected: %s\n", describe(why).c_str());
  }

  void use(std::mt19937_64& random, std::size_t first, std::size_t count) {
    const claim mine(memory, first, count);
    const auto need = random() % 4 == 0 ? access_flags::remote_read : local_access;
    auto got = cache.acquire(reinterpret_cast<void*>(base + first * page), count * page, need,
                             {.persistent = random() % 200 == 0, .bypass = random() % 50 == 0});
    if (!got) return refused(got.error());
    check(*got, first, count);
    if (random() % 200 == 0) cache.unpersist(reinterpret_cast<void*>(base), pages * page);
  }

  void use_batch(std::size_t first, std::size_t count) {
    const claim mine(memory, first, count);
    std::vector<range> ranges;
    for (std::size_t i = first; i < first + count; i += 2) ranges.push_back({base + i * page, base + i * page + page});
    auto got = cache.acquire_batch(ranges, local_access, {.workers = 2});
    if (!got) return refused(got.error());
    for (std::size_t i = 0; i < ranges.size(); ++i) check((*got)[i], first + 2 * i, 1);
  }

  void use_other(std::mt19937_64& random, std::size_t first, std::size_t count) {
    if (random() % 256 == 0) return other.renew([this] { expect_ended(); });
    const claim mine(memory, first, count);
    other.use([&](auto& beside) {
      for (int n = 0; n < 2; ++n) {
        auto got = beside.acquire(reinterpret_cast<void*>(base + first * page), count * page);
        if (!got) refused(got.error());
      }
    });
  }
  // Checks the device of the cache that was just destroyed, and that of the cache before it: no call may have come
  // after their ends.
  void expect_ended() {
    EXPECT_EQ(other_device->open_count(), 0U);
    EXPECT_EQ(other_device->misuses, 0U);
    if (ended_device) {
      EXPECT_EQ(ended_device->misuses, 0U);
    }
    ended_device = other_device;
  }
  std::unique_ptr<pinfold::cache<fake_registrar>> make_other() {
    other_device = std::make_shared<fake_device>();
    return std::make_unique<pinfold::cache<fake_registrar>>(
        fake_registrar(other_device), keeping({.retain = ++lives % 4 != 0, .max_count = room, .shards = shards}));
  }

  void replace(std::size_t which) {
    const std::unique_lock mine(memory.in_use[which]);
    auto* const begin = reinterpret_cast<void*>(base + which * page);
    which % 2 == 0 ? cache.invalidate(begin, page) : announce_gone(begin, page);
    ++memory.version[which];
  }

  const std::uintptr_t page;
  const std::uint32_t shards;
  replaceable_memory memory;
  unsigned lives = 0;
  std::shared_ptr<fake_device> other_device;
  std::shared_ptr<fake_device> ended_device;
  short_lived_cache<pinfold::cache<fake_registrar>> other{[this] { return make_other(); }};
  std::shared_ptr<fake_device> device;
  std::shared_ptr<versioned_registrar::ledger> kept;

 public:
  pinfold::cache<versioned_registrar> cache;
};

/// With several shards, ranges lie within and across the cells of the first levels.
struct division {
  std::uint32_t shards;
  std::uintptr_t page;
};

TEST(local_cache_stress, threads_never_hang_leak_or_get_stale_registrations) {
  constexpr std::array divisions{division{1, 4096}, division{8, 512 * 1024}, division{2, std::uintptr_t{3} << 20U}};
  const auto each = std::chrono::milliseconds(stress_time()) / 4 / divisions.size();
  for (const auto& [shards, page] : divisions)
    for (const std::uint64_t threads : {2U, 8U})
      for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
        cache_options options{.max_count = room, .closes = closes, .shards = shards};
        options.reaper = closes == close_policy::deferred;
        options.wait_timeout = std::chrono::milliseconds(500);
        if (shards == 1) options.merge = options.reaper == (threads == 8) ? merge_policy::overlaps : merge_policy::none;
        options.merge_limit = 16 * page;
        options.serial = threads == 2 && options.merge != merge_policy::none;
        arena all(options, page);
        watchdog guard([&] { all.print(); });
        act_on_threads(all, threads, each, guard);
        all.cache.unpersist(reinterpret_cast<void*>(base), pages * page);
        all.finish();
      }
}

}  // namespace
}  // namespace pinfold::testing::local_cache_stress_test
