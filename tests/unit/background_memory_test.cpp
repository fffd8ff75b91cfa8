// SPDX-License-Identifier: BSD-3-Clause
// Large leases and tickets that run out of memory at each of the caller's allocations (R65): nothing changes, and
// nothing is lost.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/sanitized.hpp"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

namespace {

// Counts this thread's allocations, so that those of other threads do not matter.
[[maybe_unused]] thread_local constinit int allocations_left = -1;

[[maybe_unused]] void* allocate(std::size_t bytes) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  return std::malloc(bytes);
}

}  // namespace

#if !PINFOLD_SANITIZED
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const got = allocate(bytes);
  if (got == nullptr) throw std::bad_alloc();
  return got;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace pinfold::testing::background_memory_test {
namespace {

using namespace std::chrono_literals;

/// A registrar that allocates nothing.
struct counting_registrar {
  static constexpr const char* name = "counting";
  struct registration_type {
    std::uint64_t unused;
  };
  std::atomic<int>* live;

  [[nodiscard]] static registrar_limits limits() noexcept { return {.granularity = 1}; }
  [[nodiscard]] result<registration_type> open(range, access_flags) noexcept { return ++*live, registration_type{}; }
  [[nodiscard]] result<void> close(const registration_type&) noexcept { return --*live, result<void>(); }
};

constexpr std::size_t piece = 0x10000;
constexpr std::size_t bytes = 12 * piece;

void* memory() { return reinterpret_cast<void*>(0x1000000); }

struct fixture {
  std::atomic<int> live{0};
  pinfold::cache<counting_registrar> cache{counting_registrar{&live}, keeping({.drain_timeout = 0s})};

  ~fixture() {
    EXPECT_EQ(cache.statistics().leases_now, 0U);
    EXPECT_TRUE(cache.quiesce());
    EXPECT_EQ(live, 0);
    expect_counters_add_up(cache.statistics());
  }
  auto started() { return cache.register_in_background(memory(), bytes, local_access, {.piece_bytes = piece}); }
};

// Calls `step`, which returns its error, with room for 0, 1, 2... allocations until it succeeds. Returns how often it
// failed.
template <class Step>
int failures_of(Step&& step) {
  for (int left = 0; left < 200; ++left) {
    fixture f;
    const std::optional<error> failed = step(f, left);
    if (!failed) return left;
    EXPECT_EQ(failed->code, errc::out_of_resources) << "allocation " << left;
  }
  ADD_FAILURE() << "it never succeeds";
  return 0;
}

// Calls `body` with room for so many allocations.
template <class Body>
auto with_room(int left, Body&& body) {
  allocations_left = left;
  auto made = body();
  allocations_left = -1;
  return made;
}

template <class T>
std::optional<error> error_of(const result<T>& made) {
  return made ? std::nullopt : std::optional(made.error());
}

class background_memory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer has an operator new of its own";
  }
};

TEST_F(background_memory, R65_large_lease_is_all_or_nothing) {
  for (const unsigned workers : {1U, 3U})
    EXPECT_GT(failures_of([&](fixture& f, int left) {
                return error_of(with_room(left, [&] {
                  return f.cache.acquire_large(memory(), bytes, local_access,
                                               {.piece_bytes = piece, .workers = workers});
                }));
              }),
              3);
}

TEST_F(background_memory, R65_list_of_a_large_lease) {
  EXPECT_GT(failures_of([](fixture& f, int left) {
              auto lease = f.cache.acquire_large(memory(), bytes, local_access, {.piece_bytes = piece});
              EXPECT_TRUE(lease);
              return error_of(with_room(left, [&] { return lease->list(memory(), bytes); }));
            }),
            0);
}

TEST_F(background_memory, R65_ticket_is_not_made) {
  EXPECT_GT(failures_of([](fixture& f, int left) { return error_of(with_room(left, [&] { return f.started(); })); }),
            3);
}

TEST_F(background_memory, R65_ticket_stays_as_it_is) {
  using ticket = background_registration<counting_registrar>;
  const auto calls = std::to_array<std::function<std::optional<error>(ticket&)>>({
      [](ticket& of) { return error_of(of.acquire(memory(), bytes)); },
      [](ticket& of) { return error_of(of.list(memory(), bytes)); },
      [](ticket& of) { return error_of(of.stale()); },
      [](ticket& of) { return error_of(of.renew()); },
      [](ticket& of) { return error_of(of.take()); },
  });
  for (std::size_t which = 0; which < calls.size(); ++which)
    EXPECT_GT(failures_of([&](fixture& f, int left) {
                auto made = f.started();
                EXPECT_TRUE(made && made->wait());
                const bool becomes_stale = which == 2 || which == 3;
                if (becomes_stale) f.cache.invalidate(memory(), piece);
                const auto failed = with_room(left, [&] { return calls.at(which)(*made); });
                if (failed) {
                  EXPECT_FALSE(becomes_stale && made->take());
                  EXPECT_TRUE(!becomes_stale || (made->renew() && made->wait())) << "it can be called again";
                  EXPECT_TRUE(made->take()) << "nothing was lost";
                }
                return failed;
              }),
              0)
        << which;
}

}  // namespace
}  // namespace pinfold::testing::background_memory_test
