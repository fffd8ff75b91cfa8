// SPDX-License-Identifier: BSD-3-Clause
// What a cache does, without a call, when an exporter's process has ended (R70).
#include "support/host/pattern.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/exporter_peer.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::exporter_end_test {
namespace {

using cache_type = import_cache<memfd_importer>;

constexpr std::size_t bytes = 4096;

/// Waits for what another thread does; returns false after a minute.
template <class F>
[[nodiscard]] bool eventually(F&& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

class exporter_end : public ::testing::TestWithParam<memfd_via> {
 protected:
  /// Forked exporters use the same addresses, so that each has to be a peer of its own.
  [[nodiscard]] static auto acquire(cache_type& from, const memfd_handle& handle) {
    return from.acquire({handle.exporter}, handle, handle.base, handle.size);
  }
  [[nodiscard]] static bool finds(cache_type& in, const memfd_handle& handle) {
    return in.find({handle.exporter}, handle, handle.base, bytes).has_value();
  }
  [[nodiscard]] static cache_type make(const cache_options& options = {}) {
    return cache_type(memfd_importer({.via = GetParam()}), options);
  }
  static void end(exporter_peer& peer) {
    peer.process().kill();
    peer.process().reap();
  }
  exporter_peer peer{{.serve = true}};
  exporter_peer other{{.serve = true}};
};

TEST_P(exporter_end, R70_closes_its_idle_mappings_and_descriptors_and_those_of_no_other) {
  auto cache = make();
  const auto kept = other.allocate(bytes, 1);
  ASSERT_TRUE(acquire(cache, kept));
  const int before = open_descriptors();
  const auto idle = peer.allocate(bytes, 2);
  ASSERT_TRUE(acquire(cache, idle));
  auto held = acquire(cache, peer.allocate(bytes, 3));
  ASSERT_TRUE(held);
  end(peer);
  EXPECT_TRUE(eventually([&] { return cache.statistics().open == 2 && open_descriptors() == before; }));
  EXPECT_TRUE(held->stale());
  EXPECT_TRUE(holds_pattern(static_cast<const std::byte*>(held->data()), bytes, 3)) << "a lease keeps its bytes";
  EXPECT_TRUE(held->release());
  EXPECT_EQ(cache.statistics().open, 1U);
  EXPECT_TRUE(finds(cache, kept));
  EXPECT_FALSE(finds(cache, idle));
}

TEST_P(exporter_end, R70_with_deferred_closes_only_hides_its_mappings) {
  auto cache = make({.closes = close_policy::deferred});
  const auto idle = peer.allocate(bytes, 1);
  ASSERT_TRUE(acquire(cache, idle));
  end(peer);
  EXPECT_TRUE(eventually([&] { return !finds(cache, idle); }));
  EXPECT_EQ(cache.statistics().open, 1U);
  EXPECT_TRUE(cache.progress());
  EXPECT_EQ(cache.statistics().open, 0U);
}

TEST_P(exporter_end, R70_is_found_also_by_an_open_that_came_before) {
  auto cache = make();
  const auto idle = peer.allocate(bytes, 1);
  const auto late = peer.allocate(bytes, 2);
  ASSERT_TRUE(acquire(cache, idle));
  end(peer);
  const auto refused = acquire(cache, late);
  EXPECT_FALSE(refused);
  EXPECT_TRUE(eventually([&] { return cache.statistics().open == 0; }));
}

TEST_P(exporter_end, R70_comes_after_descriptors_ran_out) {
  for (const bool meanwhile : {false, true}) {
    exporter_peer ending({.serve = true});
    auto cache = make();
    const auto held = acquire(cache, ending.allocate(bytes, 1));
    const auto late = other.allocate(bytes, 2);
    ASSERT_TRUE(held);
    {
      const lowered_limit none(RLIMIT_NOFILE, lowest_free_descriptor());
      static_cast<void>(acquire(cache, late));  // closes the descriptors that show the end
      if (meanwhile) end(ending);
    }
    if (!meanwhile) end(ending);
    EXPECT_TRUE(eventually([&] { return cache.progress() && held->stale(); })) << "meanwhile: " << meanwhile;
  }
}

TEST_P(exporter_end, R70_may_come_while_the_cache_ends_or_moves) {
  const int before = open_descriptors();
  for (int i = 0; i < 40; ++i) {
    exporter_peer short_lived({.serve = true});
    auto cache = std::make_unique<cache_type>(make());
    for (std::uint32_t seed = 0; seed < 8; ++seed) ASSERT_TRUE(acquire(*cache, short_lived.allocate(bytes, seed)));
    short_lived.process().kill();
    std::this_thread::sleep_for(std::chrono::microseconds{50 * i});
    if (i % 2 == 0) {
      cache_type moved(std::move(*cache));
      EXPECT_TRUE(eventually([&] { return moved.statistics().open == 0; }));
    }
    cache.reset();
  }
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
}

TEST_P(exporter_end, R70_does_not_concern_the_exporter_that_took_its_place) {
  for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
    auto cache = make({.closes = closes});
    exporter_peer first({.serve = true});
    const auto old = first.allocate(bytes, 1);
    const auto made = peer.try_allocate(bytes, 2, old.base);
    if (!made) GTEST_SKIP() << "that address is taken in the other process";
    const auto now = *made;
    const auto one = [&](const memfd_handle& handle) { return cache.acquire({1}, handle, handle.base, bytes); };
    auto held = one(old);
    ASSERT_TRUE(held);
    auto living = one(now);
    ASSERT_TRUE(living);
    end(first);
    EXPECT_TRUE(held->release());
    EXPECT_TRUE(eventually([&] { return cache.progress() && cache.statistics().open == 1; }));
    EXPECT_FALSE(living->stale());
    EXPECT_TRUE(one(now));
    peer.free(now);
  }
}

TEST_P(exporter_end, R70_may_come_during_an_open) {
  if (thread_sanitized) GTEST_SKIP() << "its runtime takes the addresses of a large buffer";
  for (int i = 0; i < 30; ++i) {
    cache_type cache(memfd_importer({.via = GetParam(), .populate = true}));
    exporter_peer dying({.serve = true});
    const auto small = dying.allocate(bytes, 1);
    const auto large = dying.allocate(std::size_t{8} << 20U, 2);
    ASSERT_TRUE(acquire(cache, small));
    {
      const std::jthread kills([&] {
        std::this_thread::sleep_for(std::chrono::microseconds{100 * i});
        dying.process().kill();
      });
      static_cast<void>(acquire(cache, large));
    }
    EXPECT_TRUE(eventually([&] { return cache.statistics().open == 0; })) << i;
  }
}

TEST_P(exporter_end, R70_reaches_a_cache_whose_answers_the_program_carries) {
  const auto listener = release_listener::create([](const release_message&) {}).value();
  using releasing = releasing_importer<memfd_importer>;
  import_cache<releasing> cache(releasing(memfd_importer({.via = GetParam()}), listener));
  const auto idle = peer.allocate(bytes, 1);
  ASSERT_TRUE(cache.acquire({1}, idle, idle.base, bytes));
  end(peer);
  EXPECT_TRUE(eventually([&] { return cache.statistics().open == 0; }));
}

/// Closes all descriptors but these, as a daemon does that closes all it did not open. Gives their numbers to sockets
/// of the program, with a message in each, if `reuse`.
std::vector<int> close_all_but(std::vector<int> kept, bool reuse) {
  constexpr int most = 64;
  std::sort(kept.begin(), kept.end());
  unsigned first = 3;
  for (const int one : kept) {
    if (static_cast<unsigned>(one) > first) ::close_range(first, static_cast<unsigned>(one) - 1, 0);
    first = static_cast<unsigned>(one) + 1;
  }
  ::close_range(first, ~0U, 0);
  std::vector<int> own;
  while (reuse && (own.empty() || own.back() < most)) {
    std::array<int, 2> ends{-1, -1};
    // By number: ThreadSanitizer would report that the library looks whose file has a number that was its own.
    if (::syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends.data()) != 0) break;
    for (const int one : ends) {
      static_cast<void>(::send(one, "own", 3, 0));
      own.push_back(one);
    }
  }
  return own;
}

/// Returns whether each of the program's sockets has its message, and no other.
bool untouched(const std::vector<int>& own) {
  std::array<char, 64> text{};
  return std::all_of(own.begin(), own.end(), [&](int one) {
    return ::recv(one, text.data(), text.size(), 0) == 3 && ::recv(one, text.data(), text.size(), 0) < 0;
  });
}

TEST_P(exporter_end, a_living_exporter_is_reached_after_the_program_closed_all_descriptors) {
  for (const bool reuse : {false, true}) {
    child_process child([&](line&) {
      auto cache = make();
      if (!acquire(cache, peer.allocate(bytes, 1))) return 1;
      const auto second = peer.allocate(bytes, 2);
      const auto own = close_all_but({peer.process().talk().number()}, reuse);
      if (!acquire(cache, second)) return 2;
      return untouched(own) ? 0 : 3;
    });
    EXPECT_EQ(child.finish(), 0) << "reuse: " << reuse;
  }
}

TEST_P(exporter_end, R70_comes_after_the_program_closed_all_descriptors) {
  for (const bool reuse : {false, true}) {
    exporter_peer ending({.serve = true});
    const auto handle = ending.allocate(bytes, 1);
    child_process child([&](line& talk) {
      auto cache = make();
      const auto held = acquire(cache, handle);
      if (!held) return 1;
      const auto own = close_all_but({talk.number()}, reuse);
      static_cast<void>(talk.send(true));
      if (!eventually([&] { return cache.progress() && held->stale(); })) return 2;
      return untouched(own) ? 0 : 3;
    });
    ASSERT_TRUE(child.talk().receive<bool>());
    end(ending);
    EXPECT_EQ(child.finish(), 0) << "reuse: " << reuse;
  }
}

TEST_P(exporter_end, R70_in_a_forked_child_nothing_is_watched) {
  auto cache = make();
  ASSERT_TRUE(acquire(cache, peer.allocate(bytes, 1)));
  child_process child([&](line& talk) {
    static_cast<void>(talk.receive<int>());
    cache_type own = make();
    return own.statistics().open == 0 ? 0 : 1;
  });
  end(peer);
  EXPECT_TRUE(eventually([&] { return cache.statistics().open == 0; }));
  child.talk().send(1);
  EXPECT_EQ(child.finish(), 0);
}

INSTANTIATE_TEST_SUITE_P(via, exporter_end, ::testing::Values(memfd_via::pidfd, memfd_via::scm),
                         [](const auto& of) { return of.param == memfd_via::pidfd ? "pidfd" : "scm"; });

}  // namespace
}  // namespace pinfold::testing::exporter_end_test
