// SPDX-License-Identifier: BSD-3-Clause
// Keys for peers: generations, the wire form, and withdrawal while local use goes on.
#include "support/fixtures/local_fixture.hpp"
#include "support/processes/process_1.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/registrars/trace.hpp>
#include <pinfold/remote_key_lease.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sched.h>
#include <set>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold {

template class remote_key_lease<testing::fake_registrar>;

}  // namespace pinfold

namespace pinfold::testing::remote_key_test {
namespace {

constexpr std::uintptr_t place = 0x100000;
constexpr remote_key_token known{0x1122334455667788, 0x1000, 0x99aabbcc, 0x0102030405060709, 7};

remote_key_table table_of(std::size_t slots) { return *remote_key_table::create(slots); }

TEST(remote_key, wire_form_is_as_documented) {
  // PFRK, version 1, address, length, key, generation, slot, CRC-32C: of version 0.2, and the same for ever.
  constexpr std::array<unsigned char, remote_key_wire_bytes> recorded{
      'P',  'F',  'R',  'K',  1,    0,    0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
      0,    0x10, 0,    0,    0,    0,    0,    0,    0xcc, 0xbb, 0xaa, 0x99, 0,    0,    0,    0,
      0x09, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 7,    0,    0,    0,    0x90, 0xe9, 0x3f, 0xa3};
  const auto wire = encode(known);
  EXPECT_TRUE(std::equal(wire.begin(), wire.end(), std::as_bytes(std::span(recorded)).begin()));
  const auto read = decode_remote_key(wire);
  ASSERT_TRUE(read) << describe(read.error());
  EXPECT_EQ(*read, known);
}

TEST(remote_key, any_damage_of_the_wire_form_is_noticed) {
  const auto good = encode(known);
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = good;
      bad[at] ^= static_cast<std::byte>(1U << static_cast<unsigned>(bit));
      EXPECT_FALSE(decode_remote_key(bad)) << at;
    }
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_EQ(decode_remote_key(std::span(good).first(length)).error(), errc::invalid_handle) << length;
  auto later = good;
  later[4] = std::byte{2};
  EXPECT_EQ(decode_remote_key(later).error(), errc::unsupported);
  EXPECT_EQ(decode_remote_key(encode({1, 0, 1, 1, 1})).error(), errc::invalid_handle) << "no bytes";
  EXPECT_EQ(decode_remote_key(encode({~0ULL, 2, 1, 1, 1})).error(), errc::invalid_handle) << "wraps around";
  EXPECT_EQ(decode_remote_key(encode({1, 1, 1, 2, 1})).error(), errc::invalid_handle) << "an even generation";
}

TEST(remote_key, withdrawn_token_is_refused_for_ever) {
  auto table = table_of(1);
  std::vector<remote_key_token> old;
  for (int i = 0; i < 100; ++i) {
    auto token = table.issue(place, 0x1000, 5);
    ASSERT_TRUE(token) << describe(token.error());
    EXPECT_TRUE(table.valid(*token));
    EXPECT_EQ(table.issue(place, 1, 1).error(), errc::out_of_resources) << "one slot, one key";
    EXPECT_TRUE(table.withdraw(*token));
    EXPECT_EQ(table.withdraw(*token).error(), errc::stale_handle);
    old.push_back(*token);
    for (const auto& one : old) EXPECT_FALSE(table.valid(one));
  }
  EXPECT_EQ(table.count(), 0U);
}

TEST(remote_key, a_peer_checks_a_copy_of_the_table) {
  auto table = table_of(16);
  const auto token = table.issue(place, 0x1000, 5);
  ASSERT_TRUE(token);
  const std::vector<std::uint64_t> copy(table.words().begin(), table.words().end());
  EXPECT_TRUE(is_current(*token, copy));
  EXPECT_FALSE(is_current(*token, std::span(copy).first(token->slot))) << "the copy is too short";
  EXPECT_TRUE(table.withdraw(*token));
  EXPECT_TRUE(is_current(*token, copy)) << "an old copy knows no better: the device has to refuse the key";
  EXPECT_FALSE(is_current(*token, table.words()));
}

TEST(remote_key, tokens_of_an_earlier_table_at_the_same_place_are_not_current) {
  std::array<std::uint64_t, 4> words{};
  std::vector<remote_key_token> earlier;
  {
    auto table = *remote_key_table::create_in(words);
    for (int i = 0; i < 4; ++i) earlier.push_back(*table.issue(place, 1, 1));
  }
  const auto table = *remote_key_table::create_in(words);
  for (const auto& one : earlier) EXPECT_FALSE(table.valid(one));
}

TEST(remote_key, refuses_what_makes_no_sense) {
  EXPECT_EQ(remote_key_table::create(0).error(), errc::invalid_argument);
  EXPECT_EQ(remote_key_table::create_in({}).error(), errc::invalid_argument);
  auto table = table_of(2);
  EXPECT_EQ(table.issue(place, 0, 1).error(), errc::invalid_range);
  EXPECT_EQ(table.issue(~0ULL, 2, 1).error(), errc::invalid_range);
  EXPECT_EQ(table.withdraw({place, 1, 1, 1, 2}).error(), errc::invalid_argument);
  EXPECT_EQ(table.withdraw({place, 1, 1, 2, 0}).error(), errc::invalid_argument);
  EXPECT_FALSE(table.valid({place, 1, 1, 1, 0}));
  EXPECT_EQ(table.count(), 0U);
}

TEST(remote_key_lease, withdraws_while_local_use_goes_on) {
  local_fixture f;
  auto table = table_of(4);
  auto mine = f.acquire(place, place + 0x2000, local_access | access_flags::remote_read);
  ASSERT_TRUE(mine);
  auto shown = remote_key_lease<fake_registrar>::create(std::move(*mine), 0x2000, table);
  ASSERT_TRUE(shown) << describe(shown.error());
  const auto token = shown->token();
  EXPECT_EQ(token.address, place);
  EXPECT_EQ(token.length, 0x2000U);
  EXPECT_EQ(token.key, shown->local().registration().key);
  EXPECT_TRUE(table.valid(token));
  EXPECT_TRUE(shown->withdraw());
  EXPECT_FALSE(table.valid(token));
  EXPECT_EQ(f.device->open_count(), 1U);
  EXPECT_TRUE(shown->local());
  auto rest = shown->end();
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->data(), reinterpret_cast<void*>(place));
}

TEST(remote_key_lease, the_table_comes_before_the_device) {
  local_fixture f;
  auto table = table_of(4);
  int calls = 0;
  std::optional<remote_key_token> token;
  remote_access device{.key = 77, .withdraw = [&]() -> result<void> {
                         EXPECT_FALSE(table.valid(*token)) << "no peer begins while the device withdraws";
                         EXPECT_EQ(f.cache.statistics().leases_now, 1U) << "the registration is there until the end";
                         if (++calls == 1) return fail_errno(errc::driver_error, EBUSY, "not yet");
                         return {};
                       }};
  {
    auto shown = remote_key_lease<fake_registrar>::create(*f.acquire(place, place + 0x1000), 0x1000, table, device);
    ASSERT_TRUE(shown);
    token = shown->token();
    EXPECT_EQ(token->key, 77U);
    EXPECT_EQ(shown->withdraw().error().native, EBUSY);
    auto moved = std::move(*shown);
    EXPECT_TRUE(shown->withdraw()) << "a moved-from object withdraws nothing";
    EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(calls, 2) << "the end tried again";
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
}

TEST(remote_key_lease, an_error_withdraws_at_the_device_and_releases) {
  local_fixture f;
  auto table = table_of(1);
  int calls = 0;
  const remote_access device{.withdraw = [&]() -> result<void> { return ++calls, result<void>{}; }};
  using shown = remote_key_lease<fake_registrar>;
  EXPECT_EQ(shown::create({}, 1, table, device).error(), errc::closed);
  EXPECT_EQ(shown::create(*f.acquire(place, place + 0x1000), 0x1001, table, device).error(), errc::invalid_range);
  EXPECT_EQ(shown::create(*f.acquire(place, place + 0x1000), 0, table, device).error(), errc::invalid_range);
  auto gone = f.acquire(place, place + 0x1000);
  f.invalidate(place, place + 0x1000);
  EXPECT_EQ(shown::create(std::move(*gone), 0x1000, table, device).error(), errc::stale_handle);
  ASSERT_TRUE(table.issue(1, 1, 1));
  EXPECT_EQ(shown::create(*f.acquire(place, place + 0x1000), 0x1000, table, device).error(), errc::out_of_resources);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  EXPECT_EQ(table.count(), 1U);
}

TEST(remote_key_lease, memory_that_was_replaced_withdraws_the_key) {
  local_fixture f;
  auto table = table_of(1);
  auto shown = remote_key_lease<fake_registrar>::create(*f.acquire(place, place + 0x1000), 0x1000, table);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->withdraw_if_stale(), true);
  f.invalidate(place, place + 0x1000);
  EXPECT_EQ(shown->withdraw_if_stale(), false);
  EXPECT_FALSE(table.valid(shown->token()));
  EXPECT_EQ(shown->withdraw_if_stale(), false);
}

// The words are shared, so the child's end of the lease would take the parent's key away.
TEST(remote_key_lease, R37_a_forked_child_leaves_the_parents_key_alone) {
  auto* const words =
      static_cast<std::uint64_t*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(words, MAP_FAILED);
  {
    local_fixture f;
    auto table = *remote_key_table::create_in({words, 16});
    int calls = 0;
    remote_access device{.withdraw = [&]() -> result<void> { return ++calls, result<void>{}; }};
    auto shown = remote_key_lease<fake_registrar>::create(*f.acquire(place, place + 0x1000), 0x1000, table, device);
    ASSERT_TRUE(shown);
    const auto child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const bool refused = shown->withdraw().error() == errc::closed && table.issue(1, 1, 1).error() == errc::closed;
      {
        const auto ends_here = std::move(*shown);
      }
      ::_exit(refused && calls == 0 && table.count() == 1 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(table.valid(shown->token()));
  }
  ::munmap(words, 4096);
}

TEST(remote_key, R37_a_child_with_the_pid_of_its_parent_leaves_the_parents_key_alone) {
  const auto status = in_process_1([] {
    void* const words = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) return -2;
    auto table = *remote_key_table::create_in({static_cast<std::uint64_t*>(words), 16});
    const auto shown = *table.issue(place, 0x1000, 1);
    const int ended = in_another_process_1([&] {
      const auto withdrawn = table.withdraw(shown);
      const auto issued = table.issue(place, 0x1000, 1);
      return !withdrawn && withdrawn.error() == errc::closed && !issued && issued.error() == errc::closed ? 0 : 1;
    });
    return table.valid(shown) ? ended : -3;
  });
  if (!status) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(*status, 0);
}

TEST(remote_key_lease, works_over_other_registrars) {
  pinfold::cache<trace_registrar<null_registrar>> cache(trace_registrar(null_registrar(), {}), keeping());
  auto table = table_of(1);
  auto shown = remote_key_lease<trace_registrar<null_registrar>>::create(
      *cache.acquire(reinterpret_cast<void*>(place), 0x1000, access_flags::remote_read), 0x1000, table);
  ASSERT_TRUE(shown) << describe(shown.error());
  EXPECT_EQ(shown->token().key, place);
}

// Owners issue and withdraw, peers check: once a withdrawal has returned, no check that begins later accepts the token,
// and no token is issued twice.
TEST(remote_key, stress_no_withdrawn_token_is_accepted) {
  constexpr int owners = 3;
  constexpr int rounds = 20'000;
  auto table = table_of(4);
  struct published {
    std::atomic<std::uint64_t> generation{0}, withdrawn{0};
    std::atomic<std::uint32_t> slot{0};
  };
  std::array<published, owners> all;
  std::array<std::vector<std::pair<std::uint32_t, std::uint64_t>>, owners> issued;
  std::atomic<bool> over{false};
  std::atomic<std::size_t> wrong{0}, checks{0};
  std::jthread peer([&] {
    while (!over) {
      for (auto& one : all) {
        const auto withdrawn = one.withdrawn.load();  // of a withdrawal that has returned
        const auto slot = one.slot.load();
        // Two slots may have the same generation: the slot must not be that of the owner's next token.
        if (withdrawn == 0 || one.withdrawn.load() != withdrawn) continue;
        if (table.valid({1, 1, 1, withdrawn, slot})) ++wrong;
        ++checks;
      }
      std::this_thread::yield();
    }
  });
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < owners; ++i)
      threads.emplace_back([&, i] {
        for (int round = 0; round < rounds || (checks == 0 && round < rounds + 60'000); ++round) {
          if (round >= rounds) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the peer begins late
          const auto token = table.issue(place, 1, i + 1);
          if (!token) continue;
          issued[i].emplace_back(token->slot, token->generation);
          if (!table.valid(*token)) ++wrong;
          all[i].withdrawn = 0;
          all[i].slot = token->slot;
          if (!table.withdraw(*token)) ++wrong;
          all[i].withdrawn = token->generation;
        }
      });
  }
  over = true;
  peer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(checks, 0U);
  std::set<std::pair<std::uint32_t, std::uint64_t>> once;
  for (const auto& some : issued)
    for (const auto& one : some) EXPECT_TRUE(once.insert(one).second);
  EXPECT_EQ(table.count(), 0U);
}

// What an owner and its peer share. The owner is killed at any moment.
struct shared_table {
  std::array<std::uint64_t, 8> words;
  std::array<remote_key_token, 4096> given;
  std::atomic<std::uint32_t> count;
};

[[noreturn]] void give_keys_away(shared_table& shared) {
  auto table = *remote_key_table::create_in(shared.words);
  shared.count = 0;
  std::vector<remote_key_token> mine;
  for (std::uint32_t i = 0; i < shared.given.size(); ++i) {
    if (mine.size() == 6) {
      static_cast<void>(table.withdraw(mine.front()));
      mine.erase(mine.begin());
    }
    mine.push_back(*table.issue(place, 1, i));
    shared.given[i] = mine.back();
    shared.count = i + 1;
  }
  ::_exit(0);
}

TEST(remote_key, a_new_owner_makes_all_keys_of_a_killed_one_invalid) {
  auto* const shared = static_cast<shared_table*>(
      ::mmap(nullptr, sizeof(shared_table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(shared), MAP_FAILED);
  std::size_t given = 0, current = 0;
  for (int round = 0; round < 100; ++round) {
    const auto owner = ::fork();
    ASSERT_GE(owner, 0);
    if (owner == 0) give_keys_away(*shared);
    // A busy machine may start the owner late: the number of its keys, not a time, says when it is killed.
    while (shared->count < static_cast<std::uint32_t>(round * 20)) ::sched_yield();
    ::kill(owner, SIGKILL);
    ASSERT_EQ(::waitpid(owner, nullptr, 0), owner);
    const std::span<const remote_key_token> all(shared->given.data(), shared->count);
    given += all.size();
    const auto are_current = [&] {
      return std::count_if(all.begin(), all.end(), [&](const auto& one) { return is_current(one, shared->words); });
    };
    EXPECT_LE(are_current(), 7) << "those of the dead that it had not withdrawn, and one that it had just issued";
    current += static_cast<std::size_t>(are_current());
    const auto heir = remote_key_table::create_in(shared->words);
    ASSERT_TRUE(heir);
    EXPECT_EQ(are_current(), 0);
    EXPECT_EQ(heir->count(), 0U);
    shared->count = 0;
  }
  EXPECT_GT(given, current);
  EXPECT_GT(current, 0U);
  ::munmap(shared, sizeof(shared_table));
}

}  // namespace
}  // namespace pinfold::testing::remote_key_test
