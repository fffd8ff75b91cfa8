// SPDX-License-Identifier: BSD-3-Clause
// Many threads, more regions than there is room for, handles replaced meanwhile: no hang, no leak, no wrong byte.
#include "support/cache_checks.hpp"
#include "support/settings.hpp"
#include "support/watchdog.hpp"

#include <pinfold/registrars/memfd.hpp>

#include <array>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing {
namespace {

constexpr std::size_t slots = 64;
constexpr std::size_t room = 24;
constexpr std::uint64_t unit = 4096;

std::mt19937_64 random_for(std::uint64_t who) { return std::mt19937_64(test_seed() * 1000 + who); }

/// A driver and its exporters, with `slots` places whose buffers are replaced. Which kind of driver is the test's
/// choice.
struct pretend_source {
  using importer_type = pretend_importer;
  using handle = pretend_handle;

  std::shared_ptr<pretend_world> world = std::make_shared<pretend_world>();

  pretend_source() { world->capacity = room - 4; }
  importer_type importer() { return importer_type(world); }
  handle replace(std::size_t slot, std::uint64_t size) {
    return world->allocate(slot % 2, 0x1000000 + slot / 2 * 4 * unit, size);
  }
  void make_it_fail() {
    world->inject([count = std::make_shared<std::atomic<unsigned>>(0)](driver_call call, const pretend_handle&) {
      const auto n = ++*count;
      if (n % 97 == 0) return std::optional(error{errc::driver_error, native_kind::posix, 5, "injected"});
      if (n % 61 == 0 && call == driver_call::open)
        return std::optional(error{errc::out_of_resources, native_kind::posix, 12, "injected"});
      return std::optional<error>();
    });
  }
  void heal() { world->heal(); }
  [[nodiscard]] std::size_t open_now(import_cache<importer_type>&) const {
    EXPECT_EQ(world->misuses, 0U);
    return world->open_now();
  }
};

struct memfd_source {
  using importer_type = memfd_importer;
  using handle = memfd_handle;

  std::array<memfd_exporter, 2> exporters{std::move(*memfd_exporter::create()), std::move(*memfd_exporter::create())};
  std::array<memfd_buffer, slots> buffers;

  memfd_source() {
    for (std::size_t i = 0; i < slots; ++i) replace(i, 4 * unit);
  }
  importer_type importer() { return importer_type(); }
  handle replace(std::size_t slot, std::uint64_t size) {
    auto& mine = buffers[slot];
    void* const where = mine.data();
    mine = memfd_buffer();
    auto made = exporters[slot % 2].allocate(size, where);
    // Another thread's mapping may have taken the address in between: then the buffer moves, as a real program's would.
    if (!made) made = exporters[slot % 2].allocate(size);
    if (!made) throw std::runtime_error(describe(made.error()));
    auto* words = reinterpret_cast<std::uint64_t*>(made->data());
    std::fill(words, words + made->size() / 8, made->handle().serial);
    mine = std::move(*made);
    return mine.handle();
  }
  void make_it_fail() {}
  void heal() {}
  [[nodiscard]] std::size_t open_now(import_cache<importer_type>& cache) const { return cache.backend().held(); }
};

template <class Source>
class arena {
 public:
  using cache_type = import_cache<typename Source::importer_type>;
  using lease = typename cache_type::lease;
  using handle = typename Source::handle;

  arena(Source& source, const cache_options& options) : source_(source), cache(source.importer(), options) {
    for (std::size_t i = 0; i < slots; ++i) current_[i] = source_.replace(i, 4 * unit);
  }

  /// One random thing that a user's thread could do.
  void act(std::mt19937_64& random, std::vector<std::pair<handle, lease>>& mine) {
    const auto dice = random() % 1000;
    if (dice < 560) return acquire(random, mine);
    if (dice < 900) return drop_one(random, mine);
    if (dice < 940) return hand_over(mine);
    if (dice < 970) return replace(random);
    const auto peer = peer_id{random() % 2};
    if (dice < 985) return cache.invalidate(peer, {0x1000000, 0x1000000 + random() % (64 * unit)});
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
    source_.heal();
    const auto flushed = cache.flush();
    EXPECT_TRUE(flushed);
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open_now, 0U);
    EXPECT_EQ(now.entries_now, 0U);
    EXPECT_EQ(now.bytes_now, 0U);
    EXPECT_EQ(now.bypass_bytes, 0U);
    EXPECT_EQ(now.leases_now, 0U);
    EXPECT_LE(now.entries_most, room);
    EXPECT_EQ(source_.open_now(cache), 0U);
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
    if (now.entries_now > room) ++unexpected;
  }

  static bool right(const handle& of, const lease& held) {
    const auto* words = static_cast<const std::uint64_t*>(held.data());
    for (std::size_t i = 0; i < of.size / 8; i += 128)
      if (words[i] != of.serial) return false;
    return words[of.size / 8 - 1] == of.serial;
  }

  void acquire(std::mt19937_64& random, std::vector<std::pair<handle, lease>>& mine) {
    handle wanted;
    const auto slot = random() % slots;
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
    const auto slot = random() % slots;
    current_[slot] = source_.replace(slot, unit * (1 + random() % 4));
  }

  Source& source_;
  std::mutex places_;
  std::array<handle, slots> current_;
  std::vector<lease> passed_on_;

 public:
  cache_type cache;
};

template <class Source>
void run(const cache_options& options, std::uint64_t threads, std::chrono::milliseconds time) {
  Source source;
  arena<Source> all(source, options);
  source.make_it_fail();
  watchdog guard(std::chrono::seconds(30), [&] { all.print(); });
  const auto end = std::chrono::steady_clock::now() + time;
  std::vector<std::thread> workers;
  for (std::uint64_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      auto random = random_for(i);
      std::vector<std::pair<typename Source::handle, typename arena<Source>::lease>> mine;
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
class import_cache_stress : public ::testing::Test {};
using sources = ::testing::Types<pretend_source, memfd_source>;
TYPED_TEST_SUITE(import_cache_stress, sources);

TYPED_TEST(import_cache_stress, never_hangs_leaks_or_gives_wrong_bytes) {
  const auto each = std::chrono::milliseconds(stress_time()) / 8;
  for (const std::uint64_t threads : {2U, 8U})
    for (const bool retain : {true, false})
      for (const auto closes : {close_policy::inline_, close_policy::deferred}) {
        SCOPED_TRACE(::testing::Message() << threads << " threads, retain " << retain);
        cache_options options{.retain = retain, .max_count = room, .closes = closes};
        options.full = retain ? when_full::fail : when_full::wait;
        options.full_timeout = std::chrono::milliseconds(20);
        options.conflict_timeout = std::chrono::milliseconds(threads == 2 ? 0 : 1);
        options.wait_timeout = std::chrono::milliseconds(500);
        options.reaper = closes == close_policy::deferred && retain;
        run<TypeParam>(options, threads, each);
      }
}

}  // namespace
}  // namespace pinfold::testing
