// SPDX-License-Identifier: BSD-3-Clause
// Hits against evictions, invalidations, flushes, threads that begin and end, and releases on other threads: nothing is
// closed under a lease, no stale lease is handed out, nothing stays open. The test delays threads at the places where
// the order of two steps matters.
#include <chrono>
#include <cstdint>
#include <thread>

namespace pinfold::testing::hit_stress_test {

/// Yields the processor now and then, for long enough that other threads do much.
inline void dawdle() noexcept {
  thread_local std::uint32_t state = 2463534242U;
  state ^= state << 13U;
  state ^= state >> 17U;
  state ^= state << 5U;
  if (state % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state / 64 % 64));
}

}  // namespace pinfold::testing::hit_stress_test
#define PINFOLD_SYNC_POINT(name) ::pinfold::testing::hit_stress_test::dawdle()

#include "core/sync_point.hpp"
#include "support/fixtures/cache_checks.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/monitors/announce.hpp>

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace pinfold::testing::hit_stress_test {
namespace {

constexpr std::size_t regions = 64;
constexpr std::uintptr_t region = 65536;

/// The registrations, their users, and the version of the memory that each is of: one record for each key.
struct world {
  struct registered {
    std::atomic<std::int32_t> users{0};
    std::atomic<bool> open{false};
    std::uintptr_t begin = 0;
    std::uint64_t version = 0;
  };
  static constexpr std::size_t keys = 1U << 16U;  // reused in turn: no registration lives that long

  std::vector<registered> all = std::vector<registered>(keys);
  std::atomic<std::uint64_t> next{0};
  std::array<std::atomic<std::uint64_t>, regions> version{};
  std::array<std::atomic<std::uint64_t>, regions> oldest{};  // the oldest version that a request may get
  std::atomic<std::size_t> live{0};
  std::atomic<std::size_t> closed_under_a_lease{0};
  std::atomic<std::size_t> stale{0};
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> called_by_find{0};
};

thread_local bool finding = false;  // inside `find`, which never calls the registrar (R48)

class watched_registrar {
 public:
  static constexpr const char* name = "watched";
  struct registration_type {
    std::uint64_t key;
  };
  explicit watched_registrar(std::shared_ptr<world> in) : in_(std::move(in)) {}
  [[nodiscard]] registrar_limits limits() const noexcept { return {}; }
  [[nodiscard]] result<registration_type> open(const range& where, access_flags) noexcept {
    if (finding) ++in_->called_by_find;
    const auto version = in_->version[where.begin / region % regions].load();
    const auto key = in_->next++ % world::keys;
    auto& one = in_->all[key];
    one.begin = where.begin;
    one.version = version;
    if (one.open.exchange(true)) ++in_->wrong;
    ++in_->live;
    return registration_type{key};
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    if (finding) ++in_->called_by_find;
    auto& one = in_->all[made.key];
    if (one.users.load() != 0) ++in_->closed_under_a_lease;
    if (!one.open.exchange(false)) ++in_->wrong;
    --in_->live;
    return {};
  }

 private:
  std::shared_ptr<world> in_;
};

using cache_type = pinfold::cache<watched_registrar>;

/// A lease that the world counts: from after the acquire to before the release.
class known {
 public:
  known() = default;
  known(world& in, cache_type::lease held) : in_(&in), held_(std::move(held)) { ++of().users; }
  known(known&&) noexcept = default;
  known& operator=(known&& other) noexcept {
    give_back();
    in_ = other.in_;
    held_ = std::move(other.held_);
    return *this;
  }
  ~known() { give_back(); }

 private:
  world::registered& of() { return in_->all[held_.registration().key]; }
  void give_back() {
    if (!held_) return;
    if (!of().open.load()) ++in_->closed_under_a_lease;
    --of().users;
    static_cast<void>(held_.release());
  }

  world* in_ = nullptr;
  cache_type::lease held_;
};

struct arena {
  std::shared_ptr<world> in = std::make_shared<world>();
  cache_type cache;
  std::array<std::mutex, regions> replacing;
  std::mutex shelf_mutex;
  std::array<known, 32> shelf;  // leases that stay until a thread puts its own in their place

  explicit arena(std::size_t budget)
      : cache(watched_registrar(in), {.max_count = budget, .monitor = monitor_choice::manual}) {}

  cache_type::lease acquired(const void* wanted) {
    auto got = cache.acquire(wanted, 4096);
    if (got) return std::move(*got);
    if (got.error().code != errc::over_budget) ++in->wrong;
    return {};
  }
  cache_type::lease found(const void* wanted) {
    finding = true;
    auto got = cache.find(wanted, 4096);
    finding = false;
    return got ? std::move(*got) : cache_type::lease();
  }

  void use(std::mt19937_64& random) {
    const auto which = random() % regions;
    const auto begin = region * (regions + which);
    const auto oldest = in->oldest[which].load();
    auto* const wanted = reinterpret_cast<void*>(begin + random() % 4 * 4096);
    auto got = random() % 4 == 0 ? found(wanted) : acquired(wanted);
    if (!got) return;
    const auto& made = in->all[got.registration().key];
    if (!made.open || made.begin / region % regions != which) ++in->wrong;
    if (made.version < oldest) ++in->stale;
    known held(*in, std::move(got));
    if (random() % 16 != 0) return;
    std::lock_guard guard(shelf_mutex);
    std::swap(shelf[random() % shelf.size()], held);
  }

  // Invalidates every second region, and announces the others on the event log, as a monitor does.
  void tell(std::size_t which) {
    auto* const begin = reinterpret_cast<void*>(region * (regions + which));
    which % 2 == 0 ? cache.invalidate(begin, region) : announce_gone(begin, region);
  }

  // Tells twice: a registration opened between the first time and the change has the old version.
  void replace(std::size_t which) {
    std::lock_guard guard(replacing[which]);
    tell(which);
    const auto now = ++in->version[which];
    tell(which);
    in->oldest[which] = now;
  }

  void act(std::mt19937_64& random) {
    const auto dice = random() % 10'000;
    if (dice < 9900) return use(random);
    if (dice < 9990) return replace(random() % regions);
    static_cast<void>(dice < 9998 ? cache.progress() : cache.flush());
  }

  void finish() {
    for (auto& one : shelf) one = {};
    EXPECT_TRUE(cache.flush());
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.leases_now, 0U);
    EXPECT_EQ(in->live, 0U);
    EXPECT_EQ(in->closed_under_a_lease, 0U);
    EXPECT_EQ(in->stale, 0U);
    EXPECT_EQ(in->wrong, 0U);
    EXPECT_EQ(in->called_by_find, 0U);
    EXPECT_GT(now.found, now.find_misses / 10);
    EXPECT_GT(now.hits, now.misses / 10);
    std::printf("%s\n", describe(now).c_str());
  }
};

void run(std::size_t budget, std::uint64_t threads, std::chrono::milliseconds each) {
  arena all(budget);
  core::at_point = dawdle;
  watchdog guard([&] { std::fprintf(stderr, "%s\n", describe(all.cache.statistics()).c_str()); });
  const auto end = std::chrono::steady_clock::now() + each;
  std::vector<std::jthread> workers;
  for (std::uint64_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      for (std::uint64_t life = 0; life == 0 || std::chrono::steady_clock::now() < end; ++life)
        std::jthread([&, life] {  // the threads begin and end, and leave leases behind
          std::mt19937_64 random(test_seed() * 1000 + i * 100'000 + life);
          // So many, however little time a loaded machine has for them.
          for (int n = 0; n < 64 || (n < 20'000 && std::chrono::steady_clock::now() < end); ++n) {
            for (int more = 0; more < 16; ++more) all.act(random);
            guard.beat();
          }
        });
    });
  workers.clear();
  core::at_point = nullptr;
  all.finish();
}

TEST(hit_stress, no_entry_is_closed_under_a_lease_or_left_open) {
  const auto each = std::chrono::milliseconds(stress_time()) / 6;
  for (const std::uint64_t threads : {2U, 3U, 8U})
    for (const std::size_t budget : {unlimited, 3 * regions}) run(budget, threads, each);
}

}  // namespace
}  // namespace pinfold::testing::hit_stress_test
