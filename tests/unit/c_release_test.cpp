// SPDX-License-Identifier: BSD-3-Clause
// The release protocol in C (R66). The importer is a child, which was forked before this process had threads.
#include "support/processes/child_process.hpp"

#include <pinfold/release.h>
#include <pinfold/segments.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::c_release_test {
namespace {

using handle_bytes = std::array<unsigned char, PINFOLD_MEMFD_HANDLE_BYTES>;

constexpr std::size_t page = 4096;
constexpr std::uint64_t soon = 60'000;  // milliseconds; an event ends each such wait before

struct order {
  enum class verb : int { lease, release, find, destroy } what = verb::lease;
  handle_bytes handle{};
  std::uint64_t address = 0;
};
struct answer {
  int code = PINFOLD_OK;
  bool leased = false;
  char first = 0;
};

class importing {
 public:
  importing() { EXPECT_EQ(pinfold_create_memfd_releasing(0, nullptr, &cache_), PINFOLD_OK); }
  importing(const importing&) = delete;
  importing& operator=(const importing&) = delete;
  ~importing() { EXPECT_EQ(destroyed_ ? PINFOLD_OK : pinfold_destroy(cache_), PINFOLD_OK); }

  answer obey(const order& given) {
    switch (given.what) {
      case order::verb::lease: return lease(given);
      case order::verb::release: return {.code = pinfold_release(std::exchange(lease_, {}))};
      case order::verb::find: return find(given);
      case order::verb::destroy: return destroyed_ = true, answer{.code = pinfold_destroy(cache_)};
    }
    return {};
  }

 private:
  answer lease(const order& given) {
    lease_ = pinfold_import(cache_, 1, given.handle.data(), given.handle.size(), given.address, page);
    if (lease_.pin == 0) return {.code = pinfold_last_error()->code};
    return {.leased = true, .first = *static_cast<const char*>(lease_.data)};
  }
  answer find(const order& given) {
    const auto found = pinfold_find_import(cache_, 1, given.handle.data(), given.handle.size(), given.address, page);
    return {.code = pinfold_release(found), .leased = found.pin != 0};
  }

  pinfold_cache* cache_ = nullptr;
  pinfold_lease lease_{};
  bool destroyed_ = false;
};

int import_as_told(line& parent) {
  importing own;
  while (const auto next = parent.receive<order>())
    if (!parent.send(own.obey(*next))) return 3;
  return 0;
}

pinfold_retire_report empty_report() {
  pinfold_retire_report report{};
  report.size = sizeof report;
  return report;
}

pinfold_exporter_options with_release(std::size_t limbo_bytes = 0) {
  pinfold_exporter_options how{};
  how.size = sizeof how;
  how.release = 1;
  how.limbo_bytes = limbo_bytes;
  return how;
}

class c_release : public ::testing::Test {
 protected:
  void SetUp() override { remake(with_release()); }
  void TearDown() override {
    pinfold_memfd_free(buffer);
    pinfold_memfd_exporter_destroy(exporter);
  }

  void remake(const pinfold_exporter_options& how) {
    TearDown();
    buffer = nullptr;
    ASSERT_EQ(pinfold_memfd_exporter_create_with(&how, &exporter), PINFOLD_OK);
    buffer = allocate();
  }

  /// Returns a buffer that begins with x, and makes `shared` name it.
  pinfold_memfd_buffer* allocate() {
    pinfold_memfd_buffer* made = nullptr;
    EXPECT_EQ(pinfold_memfd_allocate(exporter, page, &made), PINFOLD_OK);
    *static_cast<char*>(pinfold_memfd_data(made)) = 'x';
    EXPECT_EQ(pinfold_memfd_handle(made, shared.handle.data(), shared.handle.size()), PINFOLD_OK);
    shared.address = reinterpret_cast<std::uintptr_t>(pinfold_memfd_data(made));
    return made;
  }

  answer tell(order::verb what) {
    shared.what = what;
    return child.ask<answer>(shared);
  }

  pinfold_release_statistics counts() {
    pinfold_release_statistics now{};
    now.size = sizeof now;
    EXPECT_EQ(pinfold_memfd_retirements(exporter, &now), PINFOLD_OK);
    return now;
  }

  child_process child{import_as_told};
  pinfold_memfd_exporter* exporter = nullptr;
  pinfold_memfd_buffer* buffer = nullptr;
  order shared;
};

}  // namespace

TEST_F(c_release, R66_an_idle_importer_lets_go_before_its_next_hit) {
  const auto leased = tell(order::verb::lease);
  EXPECT_EQ(leased.first, 'x');
  EXPECT_EQ(tell(order::verb::release).code, PINFOLD_OK);
  EXPECT_TRUE(tell(order::verb::find).leased);
  auto report = empty_report();
  ASSERT_EQ(pinfold_memfd_retire(exporter, &buffer, soon, &report), PINFOLD_OK);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(report.let_go, 1U);
  EXPECT_EQ(report.holders, 0U);
  EXPECT_EQ(report.failure.code, PINFOLD_OK);
  EXPECT_FALSE(tell(order::verb::find).leased);
  EXPECT_EQ(tell(order::verb::lease).code, PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(counts().freed, 1U);
  EXPECT_EQ(child.finish(), 0);
}

TEST_F(c_release, R66_a_lease_is_a_holder_until_its_release) {
  ASSERT_TRUE(tell(order::verb::lease).leased);
  pinfold_retirement* ticket = nullptr;
  ASSERT_EQ(pinfold_memfd_begin_retire(exporter, &buffer, 50, &ticket), PINFOLD_OK);
  EXPECT_EQ(buffer, nullptr);
  auto report = empty_report();
  ASSERT_EQ(pinfold_retirement_wait(ticket, 200, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_LIMBO);
  EXPECT_EQ(report.holders, 1U);
  pinfold_release_holder one{};
  std::size_t count = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(soon);
  do {  // until the child has answered
    ASSERT_EQ(pinfold_retirement_holders(ticket, &one, 1, &count), PINFOLD_OK);
    if (one.answer != PINFOLD_RELEASE_LEASED) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (one.answer != PINFOLD_RELEASE_LEASED && std::chrono::steady_clock::now() < until);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(one.pid, child.pid());
  EXPECT_EQ(one.answer, PINFOLD_RELEASE_LEASED);
  EXPECT_EQ(one.lost, 0U);
  EXPECT_EQ(counts().limbo_bytes, page);
  EXPECT_FALSE(tell(order::verb::find).leased);
  EXPECT_EQ(tell(order::verb::release).code, PINFOLD_OK);
  ASSERT_EQ(pinfold_retirement_wait(ticket, UINT64_MAX, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
  pinfold_retirement_end(ticket);
}

TEST_F(c_release, R66_a_destroyed_cache_lets_everything_go) {
  ASSERT_TRUE(tell(order::verb::lease).leased);
  EXPECT_EQ(tell(order::verb::release).code, PINFOLD_OK);
  EXPECT_EQ(tell(order::verb::destroy).code, PINFOLD_OK);
  auto report = empty_report();
  ASSERT_EQ(pinfold_memfd_retire(exporter, &buffer, soon, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(child.finish(), 0);
}

TEST_F(c_release, R66_a_killed_importer_is_counted_as_dead) {
  ASSERT_TRUE(tell(order::verb::lease).leased);
  child.kill();
  auto report = empty_report();
  ASSERT_EQ(pinfold_memfd_retire(exporter, &buffer, soon, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
}

TEST_F(c_release, R66_no_limbo_frees_although_an_importer_holds) {
  remake(with_release(1));
  ASSERT_TRUE(tell(order::verb::lease).leased);
  pinfold_retirement* ticket = nullptr;
  ASSERT_EQ(pinfold_memfd_begin_retire(exporter, &buffer, 0, &ticket), PINFOLD_OK);
  auto report = empty_report();
  ASSERT_EQ(pinfold_retirement_wait(ticket, soon, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_OVER_BUDGET);
  EXPECT_EQ(report.holders, 1U);
  EXPECT_EQ(counts().freed_over_budget, 1U);
  pinfold_retirement_end(ticket);
}

TEST_F(c_release, R66_a_ticket_outlives_its_exporter) {
  ASSERT_TRUE(tell(order::verb::lease).leased);
  pinfold_retirement* ticket = nullptr;
  ASSERT_EQ(pinfold_memfd_begin_retire(exporter, &buffer, soon, &ticket), PINFOLD_OK);
  pinfold_memfd_exporter_destroy(std::exchange(exporter, nullptr));
  auto report = empty_report();
  ASSERT_EQ(pinfold_retirement_wait(ticket, soon, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_ABANDONED);
  pinfold_retirement_end(ticket);
}

TEST_F(c_release, a_buffer_that_cannot_be_retired_stays_with_the_caller) {
  pinfold_memfd_exporter* plain = nullptr;
  ASSERT_EQ(pinfold_memfd_exporter_create(0, &plain), PINFOLD_OK);
  auto report = empty_report();
  pinfold_retirement* ticket = nullptr;
  EXPECT_EQ(pinfold_memfd_retire(plain, &buffer, 1, &report), PINFOLD_E_UNSUPPORTED);
  pinfold_memfd_buffer* other = nullptr;
  ASSERT_EQ(pinfold_memfd_allocate(plain, page, &other), PINFOLD_OK);
  EXPECT_EQ(pinfold_memfd_begin_retire(exporter, &other, 1, &ticket), PINFOLD_E_INVALID_ARGUMENT);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(pinfold_memfd_data(other), nullptr);
  EXPECT_EQ(ticket, nullptr);
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(*static_cast<const char*>(pinfold_memfd_data(buffer)), 'x');
  pinfold_release_statistics none{};
  none.size = sizeof none;
  EXPECT_EQ(pinfold_memfd_retirements(plain, &none), PINFOLD_OK);
  EXPECT_EQ(none.retirements, 0U);
  ASSERT_EQ(pinfold_memfd_handle(other, shared.handle.data(), shared.handle.size()), PINFOLD_OK);
  shared.address = reinterpret_cast<std::uintptr_t>(pinfold_memfd_data(other));
  EXPECT_EQ(tell(order::verb::lease).code, PINFOLD_E_UNSUPPORTED);
  pinfold_memfd_free(other);
  pinfold_memfd_exporter_destroy(plain);
}

TEST_F(c_release, bad_options_are_refused) {
  pinfold_memfd_exporter* made = exporter;
  pinfold_exporter_options how = with_release();
  how.size = 1;
  EXPECT_EQ(pinfold_memfd_exporter_create_with(&how, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  how = with_release();
  how.flags = 1U << 20U;
  EXPECT_EQ(pinfold_memfd_exporter_create_with(&how, &made), PINFOLD_E_INVALID_ARGUMENT);
  how = with_release();
  how.release = 2;
  EXPECT_EQ(pinfold_memfd_exporter_create_with(&how, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_exporter_create_with(&how, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_cuda_exporter* gpu = nullptr;
  how = with_release();
  how.flags = PINFOLD_MEMFD_SERVE;
  EXPECT_EQ(pinfold_cuda_exporter_create_with(&how, &gpu), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(gpu, nullptr);
  ASSERT_EQ(pinfold_memfd_exporter_create_with(nullptr, &made), PINFOLD_OK);
  pinfold_memfd_exporter_destroy(made);
}

TEST_F(c_release, bad_calls_change_nothing) {
  auto report = empty_report();
  pinfold_retirement* ticket = nullptr;
  pinfold_memfd_buffer* none = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(pinfold_memfd_retire(nullptr, &buffer, 1, &report), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_retire(exporter, nullptr, 1, &report), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_retire(exporter, &none, 1, &report), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_retire(exporter, &buffer, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  report.size = 1;
  EXPECT_EQ(pinfold_memfd_retire(exporter, &buffer, 1, &report), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_begin_retire(exporter, &buffer, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_begin_retire(nullptr, &buffer, 1, &ticket), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_NE(buffer, nullptr);
  EXPECT_EQ(counts().retirements, 0U);
  EXPECT_EQ(pinfold_cuda_begin_retire(nullptr, 0, 1, nullptr, nullptr, &ticket), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_retirement_wait(nullptr, 1, &report), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_retirement_holders(nullptr, nullptr, 0, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_retirements(nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_retirements(exporter, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_retirements(nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_retirement_end(nullptr);
  ASSERT_EQ(pinfold_memfd_begin_retire(exporter, &buffer, 1, &ticket), PINFOLD_OK);
  report.size = 1;
  EXPECT_EQ(pinfold_retirement_wait(ticket, 1, &report), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_retirement_wait(ticket, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_retirement_holders(ticket, nullptr, 1, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_retirement_holders(ticket, nullptr, 0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_retirement_end(ticket);
}

TEST_F(c_release, bad_caches_are_refused) {
  pinfold_cache* cache = nullptr;
  EXPECT_EQ(pinfold_create_memfd_releasing(1U << 20U, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_memfd_releasing(0, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_options wrong{};
  EXPECT_EQ(pinfold_create_memfd_releasing(0, &wrong, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_cuda_ipc_releasing(-1, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(cache, nullptr);
}

TEST_F(c_release, a_releasing_cache_has_questions_and_windows) {
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_memfd_releasing(0, nullptr, &cache), PINFOLD_OK);
  EXPECT_EQ(pinfold_can_open(cache, shared.handle.data(), shared.handle.size()), PINFOLD_OK);
  const pinfold_window window{1, page, page};
  void* at = nullptr;
  EXPECT_EQ(pinfold_add_window(cache, &window, &at), PINFOLD_OK);
  EXPECT_NE(at, nullptr);
  EXPECT_EQ(pinfold_remove_window(cache, &window), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

TEST_F(c_release, exporter_and_importer_may_be_one_process) {
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_memfd_releasing(0, nullptr, &cache), PINFOLD_OK);
  const auto lease = pinfold_import(cache, 1, shared.handle.data(), shared.handle.size(), shared.address, page);
  EXPECT_NE(lease.pin, 0U);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  auto report = empty_report();
  ASSERT_EQ(pinfold_memfd_retire(exporter, &buffer, soon, &report), PINFOLD_OK);
  EXPECT_EQ(report.let_go, 1U);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

TEST_F(c_release, R66_a_cache_may_be_destroyed_while_its_exporter_asks) {
  constexpr std::size_t buffers = 16;
  for (int round = 0; round < 40; ++round) {
    pinfold_cache* cache = nullptr;
    ASSERT_EQ(pinfold_create_memfd_releasing(0, nullptr, &cache), PINFOLD_OK);
    std::vector<pinfold_memfd_buffer*> lent;
    for (std::size_t i = 0; i < buffers; ++i) {
      lent.push_back(allocate());
      const auto lease = pinfold_import(cache, 1, shared.handle.data(), shared.handle.size(), shared.address, page);
      ASSERT_NE(lease.pin, 0U);
      ASSERT_EQ(pinfold_release(lease), PINFOLD_OK);
    }
    std::thread asks([&] {
      std::vector<pinfold_retirement*> tickets(buffers);
      for (std::size_t i = 0; i < buffers; ++i)
        EXPECT_EQ(pinfold_memfd_begin_retire(exporter, &lent[i], soon, &tickets[i]), PINFOLD_OK);
      for (pinfold_retirement* ticket : tickets) {
        auto report = empty_report();
        EXPECT_EQ(pinfold_retirement_wait(ticket, soon, &report), PINFOLD_OK);
        EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
        pinfold_retirement_end(ticket);
      }
    });
    while (counts().retirements < (static_cast<std::size_t>(round) * buffers) + 1) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(round * 20));
    EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
    asks.join();
  }
}

TEST_F(c_release, R66_the_sink_cannot_destroy_the_cache_on_the_listening_thread) {
  struct told {
    pinfold_cache* cache = nullptr;
    std::atomic<int> code{PINFOLD_OK};
  } seen;
  pinfold_options options{};
  ASSERT_EQ(pinfold_options_init(&options, sizeof options), PINFOLD_OK);
  options.sink_self = &seen;
  options.sink = [](void* self, const pinfold_event* what) {
    auto& to = *static_cast<told*>(self);
    if (what->kind == PINFOLD_EVENT_INVALIDATED_WHILE_LEASED) to.code = pinfold_destroy(to.cache);
  };
  ASSERT_EQ(pinfold_create_memfd_releasing(0, &options, &seen.cache), PINFOLD_OK);
  const auto lease = pinfold_import(seen.cache, 1, shared.handle.data(), shared.handle.size(), shared.address, page);
  ASSERT_NE(lease.pin, 0U);
  pinfold_retirement* ticket = nullptr;
  ASSERT_EQ(pinfold_memfd_begin_retire(exporter, &buffer, soon, &ticket), PINFOLD_OK);
  for (int i = 0; i < 5000 && seen.code == PINFOLD_OK; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(seen.code, PINFOLD_E_IN_USE_CONFLICT);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  auto report = empty_report();
  ASSERT_EQ(pinfold_retirement_wait(ticket, soon, &report), PINFOLD_OK);
  EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
  pinfold_retirement_end(ticket);
  EXPECT_EQ(pinfold_destroy(seen.cache), PINFOLD_OK);
}

}  // namespace pinfold::testing::c_release_test
