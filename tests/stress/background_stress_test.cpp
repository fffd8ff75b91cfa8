// SPDX-License-Identifier: BSD-3-Clause
// Tickets of background registration over one cache (R65), while memory is invalidated, the driver refuses at random,
// tickets are cancelled, renewed, taken and destroyed, and the cache ends at any moment. No lease is on memory that was
// invalidated before its acquire, nothing stays open, and no thread hangs.
#include "support/doubles/fake_registrar.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/background.hpp>
#include <pinfold/monitors/announce.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing::background_stress_test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t piece = std::size_t{2} << 20U;
constexpr std::size_t pieces = 24;
constexpr std::uintptr_t base = 64 * piece;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// Counts the invalidations of each piece, before and after each.
struct events {
  std::array<std::atomic<std::uint64_t>, pieces> begun{};
  std::array<std::atomic<std::uint64_t>, pieces> done{};
};

/// A driver that is slow or refuses at random. A registration has the number of invalidations of its piece that had
/// begun when it was opened.
class stamping_registrar {
 public:
  static constexpr const char* name = "stamping";
  struct registration_type {
    std::uint64_t key;
    std::uint64_t stamp;
    std::uint64_t number;
  };

  stamping_registrar(std::shared_ptr<fake_device> device, std::shared_ptr<events> seen, std::uint64_t seed)
      : device_(std::move(device)), seen_(std::move(seen)), random_(seed) {}
  stamping_registrar(stamping_registrar&& other) noexcept
      : device_(std::move(other.device_)), seen_(std::move(other.seen_)), random_(other.random_) {}

  [[nodiscard]] registrar_limits limits() const noexcept { return device_->limits; }
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    const auto choice = next();
    if (choice % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(choice / 16 % 3000));
    if (choice % 64 == 1) return fail_errno(errc::driver_error, 5, "the driver refuses");
    if (choice % 64 == 2) return fail_errno(errc::out_of_resources, 12, "the driver has no room");
    const auto made = device_->enter(memory, access);
    if (!made) return tl::unexpected(made.error());
    const auto number = (memory.begin - base) / piece;
    return registration_type{*made, seen_->begun.at(number), number};
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    if (next() % 64 == 0) std::this_thread::sleep_for(200us);
    return device_->leave(made.key);
  }

 private:
  std::uint64_t next() noexcept {
    const std::scoped_lock guard(mutex_);
    return random_();
  }

  std::shared_ptr<fake_device> device_;
  std::shared_ptr<events> seen_;
  std::mutex mutex_;
  std::mt19937_64 random_;
};

using cache_type = cache<stamping_registrar>;
using ticket_type = background_registration<stamping_registrar>;

struct span_of_pieces {
  std::size_t first;
  std::size_t count;
  [[nodiscard]] range where() const { return {base + first * piece, base + (first + count) * piece}; }
};

span_of_pieces some_pieces(std::mt19937_64& random) {
  const std::size_t first = random() % pieces;
  return {first, 1 + random() % (pieces - first)};
}

/// The counts of what happened, to show that the test reaches it.
struct counts {
  std::atomic<std::uint64_t> leases{0}, taken{0}, failures{0}, renewed{0}, stale{0}, ended{0}, closed{0};
};

// Checks that no piece was registered before an invalidation that had ended before the acquire.
void check(const large_lease<stamping_registrar>& lease, const std::array<std::uint64_t, pieces>& before) {
  for (std::size_t i = 0; i < lease.pieces(); ++i) {
    const auto registered = lease.piece(i).held.registration();
    EXPECT_GE(registered.stamp, before.at(registered.number)) << "a lease on memory that was invalidated before";
    EXPECT_EQ((lease.piece(i).where.begin - base) / piece, registered.number);
  }
}

std::array<std::uint64_t, pieces> invalidated(const events& seen) {
  std::array<std::uint64_t, pieces> now{};
  for (std::size_t i = 0; i < pieces; ++i) now.at(i) = seen.done.at(i);
  return now;
}

// Uses a ticket until it is taken or dropped.
void use(ticket_type ticket, const events& seen, std::uint64_t seed, counts& all) {
  std::mt19937_64 random(seed);
  for (int step = 0; step < 60; ++step) {
    const auto some = some_pieces(random).where();
    switch (random() % 16) {
      case 0: EXPECT_LE(ticket.progress().bytes_done, ticket.progress().bytes_total); break;
      case 1: static_cast<void>(ticket.ready(at(some.begin), some.size())); break;
      case 2: static_cast<void>(ticket.wait_for(std::chrono::milliseconds(random() % 3))); break;
      case 3: static_cast<void>(ticket.wait_until_ready(some.end, std::chrono::milliseconds(random() % 3))); break;
      case 4:
        static_cast<void>(ticket.cancel(random() % 2 == 0 ? cancel_policy::keep : cancel_policy::give_back));
        break;
      case 5:
      case 6:
        if (ticket.failure()) ++all.failures;
        if (ticket.renew()) ++all.renewed;
        break;
      case 7:
        if (const auto stale = ticket.stale(); stale && !stale->empty()) ++all.stale;
        break;
      case 8: {
        const auto before = invalidated(seen);
        if (random() % 4 != 0) break;
        auto lease = ticket.take();
        if (!lease) break;
        check(*lease, before);
        ++all.taken;
        EXPECT_EQ(ticket.wait().error().code, errc::closed);
        return;
      }
      default: {
        const auto before = invalidated(seen);
        const auto lease = ticket.acquire(at(some.begin), some.size());
        if (lease) check(*lease, before);
        if (lease) ++all.leases;
        if (!lease && lease.error().code == errc::closed) ++all.closed;
      }
    }
  }
}

struct round_of_test {
  std::mt19937_64 random;
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::shared_ptr<events> seen = std::make_shared<events>();
  std::optional<cache_type> cache;
  counts& all;

  round_of_test(std::uint64_t seed, counts& into) : random(seed), all(into) {
    cache_options options;
    options.retain = random() % 4 != 0;
    options.max_count = random() % 3 == 0 ? pieces : unlimited;
    options.full = random() % 2 == 0 ? when_full::fail : when_full::wait;
    options.full_timeout = 2ms;
    options.drain_timeout = std::chrono::milliseconds(random() % 3);
    options.wait_timeout = random() % 4 == 0 ? 1ms : 1000ms;
    options.reaper = random() % 4 == 0;
    options.closes = random() % 2 == 0 ? close_policy::immediate : close_policy::deferred;
    device->refuses_overlaps = random() % 4 == 0;
    cache.emplace(stamping_registrar(device, seen, random()), keeping(options));
  }

  void run() {
    std::vector<std::jthread> users;
    for (int i = 0; i < 3; ++i) start(users);
    {
      std::jthread invalidates([this, seed = random()] { invalidate_some(seed); });
      std::jthread acquires([this, seed = random()] { acquire_some(seed); });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    cache.reset();  // the tickets go on
    ++all.ended;
    users.clear();
    EXPECT_TRUE(nothing_left());
  }

  // Workers that were in the driver when their ticket went end soon.
  bool nothing_left() {
    for (int i = 0; i < 10000 && device.use_count() > 1; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(device.use_count(), 1) << "the engine was never freed";
    EXPECT_EQ(device->misuses, 0U);
    return device->open_count() == 0;
  }

  void start(std::vector<std::jthread>& users) {
    background_options how{.piece_bytes = piece, .workers = static_cast<unsigned>(1 + random() % 3)};
    how.order = random() % 2 == 0 ? background_order::as_given : background_order::largest_first;
    if (random() % 2 == 0) how.progress = [](std::size_t done, std::size_t total) { EXPECT_LE(done, total); };
    const std::array<range, 2> asked{some_pieces(random).where(), some_pieces(random).where()};
    auto ticket = cache->register_in_background(asked, local_access, how);
    if (!ticket) {
      EXPECT_EQ(ticket.error().code, errc::larger_than_budget);
      return;
    }
    users.emplace_back(
        [this, seed = random(), own = *std::move(ticket)]() mutable { use(std::move(own), *seen, seed, all); });
  }

  void invalidate_some(std::uint64_t seed) {
    std::mt19937_64 own(seed);
    for (int i = 0; i < 40; ++i) {
      const std::size_t number = own() % pieces;
      ++seen->begun.at(number);
      void* const gone = at(base + number * piece + own() % piece);
      own() % 2 == 0 ? cache->invalidate(gone, 1) : announce_gone(gone, 1);
      ++seen->done.at(number);
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    }
  }

  void acquire_some(std::uint64_t seed) {
    std::mt19937_64 own(seed);
    for (int i = 0; i < 10; ++i) {
      const auto where = some_pieces(own).where();
      const auto before = invalidated(*seen);
      const auto lease = cache->acquire_large(at(where.begin), where.size(), local_access,
                                              {.piece_bytes = piece, .workers = static_cast<unsigned>(1 + own() % 3)});
      if (lease) check(*lease, before);
      if (own() % 4 == 0) static_cast<void>(cache->flush());
    }
  }
};

TEST(background_stress, R65_tickets_survive_invalidations_refusals_and_the_end_of_the_cache) {
  const auto seed = test_seed();
  const auto until = steady_clock::now() + stress_time();
  counts all;
  watchdog guard([] {});
  constexpr std::uint64_t most_rounds = 1000;  // on a busy machine, until there was all that this test is about
  std::uint64_t rounds = 0;
  const auto early = [&] {
    return steady_clock::now() < until || (rounds < most_rounds && (all.leases == 0 || all.renewed == 0));
  };
  while (early() && !::testing::Test::HasFailure()) {
    round_of_test(seed + rounds++, all).run();
    guard.beat();
  }
  std::printf("%llu rounds: %llu leases, %llu taken, %llu failures, %llu renewed, %llu stale, %llu closed\n",
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(all.leases),
              static_cast<unsigned long long>(all.taken), static_cast<unsigned long long>(all.failures),
              static_cast<unsigned long long>(all.renewed), static_cast<unsigned long long>(all.stale),
              static_cast<unsigned long long>(all.closed));
  EXPECT_GT(all.leases, 0U);
  EXPECT_GT(all.renewed, 0U);
}

}  // namespace
}  // namespace pinfold::testing::background_stress_test
