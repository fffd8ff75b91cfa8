// SPDX-License-Identifier: BSD-3-Clause
// The release protocol in C where the program carries the messages (R66). The test carries them.
#include "support/host/watchdog.hpp"
#include "support/processes/in_child.hpp"
#include "support/processes/process_1.hpp"

#include <pinfold/release_carried.h>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::c_carried_release_test {
namespace {

using namespace std::chrono_literals;

using handle_bytes = std::array<unsigned char, PINFOLD_MEMFD_HANDLE_BYTES>;
using message_bytes = std::array<unsigned char, PINFOLD_RELEASE_MESSAGE_BYTES>;

constexpr std::size_t page = 4096;
constexpr std::uint64_t rank = 3;
constexpr std::uint64_t soon = 60'000;  // milliseconds, after which memory that is held counts as limbo

/// A buffer of an exporter that has no part in the protocol itself.
struct shared_buffer {
  explicit shared_buffer(pinfold_memfd_exporter* exporter) {
    EXPECT_EQ(pinfold_memfd_allocate(exporter, page, &buffer), PINFOLD_OK);
    EXPECT_EQ(pinfold_memfd_handle(buffer, handle.data(), handle.size()), PINFOLD_OK);
    EXPECT_EQ(pinfold_release_id_of(handle.data(), handle.size(), &id), PINFOLD_OK);
    address = reinterpret_cast<std::uintptr_t>(pinfold_memfd_data(buffer));
  }
  shared_buffer(const shared_buffer&) = delete;
  shared_buffer& operator=(const shared_buffer&) = delete;
  ~shared_buffer() { pinfold_memfd_free(buffer); }

  pinfold_memfd_buffer* buffer = nullptr;
  handle_bytes handle{};
  pinfold_release_id id{};
  std::uint64_t address = 0;
};

struct exporting {
  exporting() { EXPECT_EQ(pinfold_memfd_exporter_create(0, &exporter), PINFOLD_OK); }
  exporting(const exporting&) = delete;
  exporting& operator=(const exporting&) = delete;
  ~exporting() { pinfold_memfd_exporter_destroy(exporter); }
  pinfold_memfd_exporter* exporter = nullptr;
};

/// Both sides in one process. Answers of the listener wait in `channel` until the test delivers them.
class c_carried_release : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pinfold_release_registry_create(one.id.exporter, &registry), PINFOLD_OK);
    for (const shared_buffer* of : {&one, &other}) {
      ASSERT_EQ(pinfold_release_registry_add(registry, of->id.serial), PINFOLD_OK);
      ASSERT_EQ(pinfold_release_registry_lend(registry, of->id.serial, rank, 77), PINFOLD_OK);
    }
    ASSERT_EQ(pinfold_release_listener_create(send, this, &listener), PINFOLD_OK);
    ASSERT_EQ(pinfold_create_memfd_carried(listener, 0, nullptr, &cache), PINFOLD_OK);
  }
  void TearDown() override {
    EXPECT_EQ(cache == nullptr ? PINFOLD_OK : pinfold_destroy(cache), PINFOLD_OK);
    EXPECT_EQ(pinfold_release_listener_destroy(listener), PINFOLD_OK);
    pinfold_release_registry_destroy(registry);
  }

  static int send(void* self, std::uint64_t exporter, const void* message, std::size_t bytes, pinfold_error* failure) {
    auto& own = *static_cast<c_carried_release*>(self);
    EXPECT_EQ(exporter, own.one.id.exporter);
    EXPECT_EQ(bytes, PINFOLD_RELEASE_MESSAGE_BYTES);
    if (own.inside) own.inside();
    if (own.broken) {
      *failure = {PINFOLD_E_DRIVER_ERROR, PINFOLD_NATIVE_POSIX, EPIPE, "the channel broke"};
      return PINFOLD_E_PEER_GONE;
    }
    message_bytes answer{};
    std::memcpy(answer.data(), message, answer.size());
    const std::scoped_lock guard(own.mutex);
    own.channel.push_back(answer);
    return PINFOLD_OK;
  }

  [[nodiscard]] pinfold_lease lease(const shared_buffer& of) const {
    return pinfold_import(cache, 1, of.handle.data(), of.handle.size(), of.address, page);
  }
  void import_and_release(const shared_buffer& of) const {
    const auto made = lease(of);
    EXPECT_NE(made.pin, 0U) << pinfold_last_error()->message;
    EXPECT_EQ(pinfold_release(made), PINFOLD_OK);
  }
  [[nodiscard]] bool finds(const shared_buffer& of) const {
    const auto found = pinfold_find_import(cache, 1, of.handle.data(), of.handle.size(), of.address, page);
    EXPECT_EQ(pinfold_release(found), PINFOLD_OK);
    return found.pin != 0;
  }
  /// Begins the retirement, and returns the request for the importer.
  [[nodiscard]] message_bytes request(const shared_buffer& of) const {
    message_bytes made{};
    std::size_t bytes = 0;
    EXPECT_EQ(pinfold_release_registry_begin_retire(registry, of.id.serial, soon), PINFOLD_OK);
    EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, made.data(), made.size(), &bytes), PINFOLD_OK);
    EXPECT_EQ(bytes, made.size());
    return made;
  }
  int receive(const message_bytes& message) const {
    return pinfold_release_listener_receive(listener, message.data(), message.size());
  }
  /// Passes the answers to the registry. Returns how many there were.
  std::size_t deliver() {
    const std::scoped_lock guard(mutex);
    const std::size_t all = channel.size();
    for (const auto& answer : channel)
      EXPECT_EQ(pinfold_release_registry_receive(registry, rank, answer.data(), answer.size()), PINFOLD_OK);
    channel.clear();
    return all;
  }
  [[nodiscard]] pinfold_retire_report report(const shared_buffer& of, std::uint64_t timeout_ms = 0) const {
    pinfold_retire_report seen{};
    seen.size = sizeof seen;
    EXPECT_EQ(pinfold_release_registry_wait(registry, of.id.serial, timeout_ms, &seen), PINFOLD_OK);
    return seen;
  }
  [[nodiscard]] pinfold_release_listener_statistics counts() const {
    pinfold_release_listener_statistics seen{};
    seen.size = sizeof seen;
    EXPECT_EQ(pinfold_release_listener_statistics_of(listener, &seen), PINFOLD_OK);
    return seen;
  }

  std::optional<watchdog> limit{std::in_place, [] {}};
  exporting with;
  shared_buffer one{with.exporter};
  shared_buffer other{with.exporter};
  pinfold_release_registry* registry = nullptr;
  pinfold_release_listener* listener = nullptr;
  pinfold_cache* cache = nullptr;
  std::mutex mutex;
  std::deque<message_bytes> channel;
  std::function<void()> inside;  ///< is called in `send`
  bool broken = false;
};

}  // namespace

TEST_F(c_carried_release, R66_an_idle_importer_lets_go) {
  import_and_release(one);
  EXPECT_TRUE(finds(one));
  EXPECT_EQ(receive(request(one)), PINFOLD_OK);
  EXPECT_FALSE(finds(one));
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_ASKING);
  EXPECT_EQ(deliver(), 1U);
  const auto last = report(one, soon);
  EXPECT_EQ(last.state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(last.let_go, 1U);
  EXPECT_EQ(last.holders, 0U);
  EXPECT_EQ(lease(one).pin, 0U);
  EXPECT_EQ(pinfold_last_error()->code, PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(counts().refused, 1U);
  EXPECT_EQ(pinfold_release_registry_lend(registry, one.id.serial, rank + 1, 0), PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(pinfold_release_registry_forget(registry, one.id.serial), PINFOLD_OK);
  pinfold_retire_report none{};
  none.size = sizeof none;
  EXPECT_EQ(pinfold_release_registry_wait(registry, one.id.serial, 0, &none), PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(report(other).state, PINFOLD_RETIRE_ASKING);
}

TEST_F(c_carried_release, R66_a_lease_is_a_holder_until_its_release) {
  const auto leased = lease(one);
  ASSERT_NE(leased.pin, 0U);
  EXPECT_EQ(receive(request(one)), PINFOLD_OK);
  EXPECT_EQ(deliver(), 1U);
  pinfold_release_holder holder{};
  std::size_t count = 0;
  ASSERT_EQ(pinfold_release_registry_holders(registry, one.id.serial, &holder, 1, &count), PINFOLD_OK);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(holder.connection, rank);
  EXPECT_EQ(holder.pid, 77);
  EXPECT_EQ(holder.answer, PINFOLD_RELEASE_LEASED);
  EXPECT_EQ(holder.lost, 0U);
  EXPECT_EQ(report(one).holders, 1U);
  EXPECT_EQ(counts().retiring, 1U);
  EXPECT_EQ(pinfold_release(leased), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_OK);
  EXPECT_EQ(counts().mappings, 0U);
  EXPECT_EQ(deliver(), 1U);
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_FREED);
}

TEST_F(c_carried_release, R66_memory_that_was_never_opened_is_let_go_at_once) {
  EXPECT_EQ(receive(request(one)), PINFOLD_OK);
  EXPECT_EQ(deliver(), 1U);
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(lease(one).pin, 0U);
  EXPECT_EQ(pinfold_last_error()->code, PINFOLD_E_STALE_HANDLE);
}

TEST_F(c_carried_release, R66_a_request_is_sent_once_unless_it_is_taken_back) {
  const auto first = request(one);
  message_bytes again{};
  std::size_t bytes = 7;
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, again.data(), again.size(), &bytes), PINFOLD_OK);
  EXPECT_EQ(bytes, 0U);
  EXPECT_EQ(pinfold_release_registry_take_back(registry, rank, first.data(), first.size()), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, again.data(), again.size(), &bytes), PINFOLD_OK);
  EXPECT_EQ(bytes, again.size());
  EXPECT_EQ(again, first);
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank + 1, again.data(), again.size(), &bytes), PINFOLD_OK);
  EXPECT_EQ(bytes, 0U);
}

TEST_F(c_carried_release, R66_a_peer_that_is_lost_counts_until_it_died) {
  EXPECT_EQ(pinfold_release_registry_begin_retire(registry, one.id.serial, soon), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_registry_lost(registry, rank), PINFOLD_OK);
  pinfold_release_holder holder{};
  std::size_t count = 0;
  ASSERT_EQ(pinfold_release_registry_holders(registry, one.id.serial, &holder, 1, &count), PINFOLD_OK);
  EXPECT_EQ(holder.lost, 1U);
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_ASKING);
  EXPECT_EQ(pinfold_release_registry_died(registry, rank), PINFOLD_OK);
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(report(one).died, 1U);
}

TEST_F(c_carried_release, R66_a_failure_of_send_reaches_the_caller_and_the_answer_is_sent_later) {
  const auto leased = lease(one);
  broken = true;
  EXPECT_EQ(receive(request(one)), PINFOLD_E_PEER_GONE);
  EXPECT_EQ(pinfold_last_error()->native_kind, PINFOLD_NATIVE_POSIX);
  EXPECT_EQ(pinfold_last_error()->native, EPIPE);
  EXPECT_STREQ(pinfold_last_error()->message, "the channel broke");
  EXPECT_EQ(pinfold_release(leased), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_E_PEER_GONE);
  EXPECT_EQ(pinfold_last_error()->native, EPIPE);
  EXPECT_EQ(counts().unsent, 2U);
  EXPECT_EQ(counts().mappings, 0U);
  broken = false;
  EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_OK);
  EXPECT_EQ(deliver(), 2U);
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_FREED);
}

TEST_F(c_carried_release, an_exception_in_send_is_a_failure) {
  inside = [] { throw std::runtime_error("no channel"); };
  EXPECT_EQ(receive(request(one)), PINFOLD_E_DRIVER_ERROR);
  inside = nullptr;
  EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_OK);
  EXPECT_EQ(deliver(), 1U);
}

TEST_F(c_carried_release, R66_send_may_release_leases_and_pass_messages_but_not_wait) {
  auto leased = lease(one);
  import_and_release(other);
  const auto asks = request(one);
  const auto asks_too = request(other);
  int calls = 0;
  inside = [&] {
    if (++calls > 1) return;
    EXPECT_EQ(pinfold_release(leased), PINFOLD_OK);
    EXPECT_EQ(receive(asks_too), PINFOLD_OK);
    EXPECT_EQ(lease(other).pin, 0U);
    EXPECT_EQ(pinfold_last_error()->code, PINFOLD_E_IN_USE_CONFLICT);
    EXPECT_EQ(pinfold_destroy(cache), PINFOLD_E_IN_USE_CONFLICT);
    EXPECT_EQ(pinfold_release_listener_destroy(listener), PINFOLD_E_IN_USE_CONFLICT);
    pinfold_cache* more = cache;
    EXPECT_EQ(pinfold_create_memfd_carried(listener, 0, nullptr, &more), PINFOLD_E_IN_USE_CONFLICT);
    EXPECT_EQ(more, nullptr);
  };
  EXPECT_EQ(receive(asks), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_OK);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(deliver(), 3U);
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(report(other).state, PINFOLD_RETIRE_FREED);
}

// Memory of destroyed caches is freed after 256 more.
TEST_F(c_carried_release, send_may_end_what_has_outlived_its_cache) {
  import_and_release(one);
  pinfold_restoration* restoration = nullptr;
  ASSERT_EQ(pinfold_quiesce(cache), PINFOLD_OK);
  ASSERT_EQ(pinfold_restore(cache, 1, &restoration), PINFOLD_OK);
  ASSERT_EQ(pinfold_restoration_wait(restoration, soon), PINFOLD_OK);
  ASSERT_EQ(pinfold_destroy(std::exchange(cache, nullptr)), PINFOLD_OK);
  for (int i = 0; i < 300; ++i) {
    pinfold_cache* other_cache = nullptr;
    ASSERT_EQ(pinfold_create_memfd(0, nullptr, &other_cache), PINFOLD_OK);
    ASSERT_EQ(pinfold_destroy(other_cache), PINFOLD_OK);
  }
  int calls = 0;
  inside = [&] {
    ++calls;
    EXPECT_EQ(pinfold_end_restoration(restoration), PINFOLD_OK);
  };
  EXPECT_EQ(receive(request(other)), PINFOLD_OK);
  EXPECT_EQ(calls, 1);
}

TEST_F(c_carried_release, R66_two_caches_over_a_listener_let_go_together) {
  pinfold_cache* second = nullptr;
  ASSERT_EQ(pinfold_create_memfd_carried(listener, PINFOLD_MEMFD_POPULATE, nullptr, &second), PINFOLD_OK);
  import_and_release(one);
  const auto leased = pinfold_import(second, 1, other.handle.data(), other.handle.size(), other.address, page);
  EXPECT_EQ(receive(request(one)), PINFOLD_OK);
  EXPECT_EQ(receive(request(other)), PINFOLD_OK);
  deliver();
  EXPECT_EQ(report(one).state, PINFOLD_RETIRE_FREED);
  EXPECT_EQ(report(other).state, PINFOLD_RETIRE_ASKING);
  EXPECT_EQ(pinfold_release(leased), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(second), PINFOLD_OK);
  deliver();
  EXPECT_EQ(report(other).state, PINFOLD_RETIRE_FREED);
}

TEST_F(c_carried_release, a_listener_with_a_cache_is_not_destroyed) {
  EXPECT_EQ(pinfold_release_listener_destroy(listener), PINFOLD_E_IN_USE_CONFLICT);
  import_and_release(one);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
  cache = nullptr;
  EXPECT_EQ(counts().mappings, 0U);
  EXPECT_EQ(pinfold_release_listener_destroy(nullptr), PINFOLD_OK);
}

TEST_F(c_carried_release, R66_a_wait_ends_with_the_answer_of_another_thread) {
  import_and_release(one);
  EXPECT_EQ(receive(request(one)), PINFOLD_OK);
  std::thread delivers([&] {
    std::this_thread::sleep_for(20ms);
    deliver();
  });
  EXPECT_EQ(report(one, soon).state, PINFOLD_RETIRE_FREED);
  delivers.join();
}

TEST_F(c_carried_release, R66_leases_that_threads_release_while_exporters_ask_are_answered_in_order) {
  constexpr int rounds = 100;
  for (int round = 0; round < rounds; ++round) {
    const shared_buffer fresh(with.exporter);
    ASSERT_EQ(pinfold_release_registry_add(registry, fresh.id.serial), PINFOLD_OK);
    ASSERT_EQ(pinfold_release_registry_lend(registry, fresh.id.serial, rank, 0), PINFOLD_OK);
    std::vector<std::thread> all;
    for (int i = 0; i < 2; ++i)
      all.emplace_back([&, leased = lease(fresh)] { EXPECT_EQ(pinfold_release(leased), PINFOLD_OK); });
    all.emplace_back([&, asks = request(fresh)] { EXPECT_EQ(receive(asks), PINFOLD_OK); });
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_OK);
    EXPECT_GT(deliver(), 0U);
    EXPECT_EQ(report(fresh).state, PINFOLD_RETIRE_FREED);
  }
}

TEST_F(c_carried_release, malformed_messages_are_refused_and_change_nothing) {
  import_and_release(one);
  const auto right = request(one);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, right.size() - 1}) {
    EXPECT_EQ(pinfold_release_listener_receive(listener, right.data(), bytes), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_release_registry_receive(registry, rank, right.data(), bytes), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_release_registry_take_back(registry, rank, right.data(), bytes), PINFOLD_E_INVALID_ARGUMENT);
  }
  std::array<unsigned char, PINFOLD_RELEASE_MESSAGE_BYTES + 1> longer{};
  std::memcpy(longer.data(), right.data(), right.size());
  EXPECT_EQ(pinfold_release_listener_receive(listener, longer.data(), longer.size()), PINFOLD_E_INVALID_ARGUMENT);
  for (std::size_t at = 0; at < right.size(); ++at) {
    auto damaged = right;
    damaged[at] ^= 0x10;
    EXPECT_EQ(receive(damaged), PINFOLD_E_INVALID_ARGUMENT) << at;
    EXPECT_EQ(pinfold_release_registry_receive(registry, rank, damaged.data(), damaged.size()),
              PINFOLD_E_INVALID_ARGUMENT);
  }
  EXPECT_EQ(counts().requests, 0U);
  EXPECT_TRUE(finds(one));
  // Each side ignores the messages of its own kind.
  EXPECT_EQ(pinfold_release_registry_receive(registry, rank, right.data(), right.size()), PINFOLD_OK);
  EXPECT_EQ(report(one).holders, 1U);
  EXPECT_EQ(receive(right), PINFOLD_OK);
  ASSERT_EQ(channel.size(), 1U);
  EXPECT_EQ(receive(channel.front()), PINFOLD_OK);
  EXPECT_EQ(counts().requests, 1U);
}

TEST_F(c_carried_release, bad_calls_are_refused) {
  message_bytes message{};
  std::size_t bytes = 7;
  pinfold_retire_report seen{};
  pinfold_release_listener* no_listener = listener;
  pinfold_release_registry* no_registry = nullptr;
  EXPECT_EQ(pinfold_release_registry_create(1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_add(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_lend(nullptr, 1, 1, 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_lend(registry, UINT64_MAX, 1, 0), PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(pinfold_release_registry_begin_retire(nullptr, 1, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_begin_retire(registry, UINT64_MAX, 1), PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(pinfold_release_registry_next_request(nullptr, rank, message.data(), message.size(), &bytes),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, nullptr, message.size(), &bytes),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, message.data(), message.size(), nullptr),
            PINFOLD_E_INVALID_ARGUMENT);
  ASSERT_EQ(pinfold_release_registry_begin_retire(registry, one.id.serial, 1), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, message.data(), message.size() - 1, &bytes),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_next_request(registry, rank, message.data(), message.size(), &bytes), PINFOLD_OK);
  EXPECT_EQ(bytes, message.size()) << "a request that had no room is not lost";
  EXPECT_EQ(pinfold_release_registry_take_back(nullptr, rank, message.data(), message.size()),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_take_back(registry, rank, nullptr, message.size()), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_receive(nullptr, rank, message.data(), message.size()),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_receive(registry, rank, nullptr, message.size()), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_died(nullptr, rank), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_lost(nullptr, rank), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_wait(registry, one.id.serial, 0, &seen), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_wait(registry, one.id.serial, 0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  seen.size = sizeof seen;
  EXPECT_EQ(pinfold_release_registry_wait(nullptr, one.id.serial, 0, &seen), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_holders(nullptr, 1, nullptr, 0, &bytes), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_holders(registry, 1, nullptr, 1, &bytes), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_holders(registry, 1, nullptr, 0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registry_holders(registry, UINT64_MAX, nullptr, 0, &bytes), PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(pinfold_release_registry_forget(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_release_registry_destroy(no_registry);

  EXPECT_EQ(pinfold_release_listener_create(nullptr, this, &no_listener), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(no_listener, nullptr);
  EXPECT_EQ(pinfold_release_listener_create(send, this, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_listener_receive(nullptr, message.data(), message.size()), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_listener_receive(listener, nullptr, message.size()), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_listener_progress(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_release_listener_statistics counted{};
  EXPECT_EQ(pinfold_release_listener_statistics_of(nullptr, &counted), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_listener_statistics_of(listener, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_listener_statistics_of(listener, &counted), PINFOLD_E_INVALID_ARGUMENT);
}

TEST_F(c_carried_release, bad_caches_are_refused) {
  pinfold_cache* made = cache;
  EXPECT_EQ(pinfold_create_memfd_carried(nullptr, 0, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(pinfold_create_memfd_carried(listener, 1U << 20U, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_memfd_carried(listener, 0, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_options wrong{};
  EXPECT_EQ(pinfold_create_memfd_carried(listener, 0, &wrong, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_cuda_ipc_carried(listener, -1, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_cuda_ipc_carried(nullptr, 0, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  ASSERT_EQ(pinfold_create_cuda_ipc_carried(listener, 0, nullptr, &made), PINFOLD_OK) << "needs no driver yet";
  EXPECT_EQ(pinfold_handle_bytes(made), PINFOLD_CUDA_HANDLE_BYTES);
  EXPECT_EQ(pinfold_destroy(made), PINFOLD_OK);
}

TEST_F(c_carried_release, the_numbers_of_a_handle_are_read_and_damage_is_noticed) {
  EXPECT_NE(one.id.exporter, 0U);
  EXPECT_EQ(one.id.exporter, other.id.exporter);
  EXPECT_NE(one.id.serial, other.id.serial);
  pinfold_release_id id{1, 2};
  auto damaged = one.handle;
  damaged[9] ^= 1U;
  EXPECT_EQ(pinfold_release_id_of(damaged.data(), damaged.size(), &id), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(pinfold_release_id_of(one.handle.data(), one.handle.size() - 1, &id), PINFOLD_E_INVALID_HANDLE);
  const std::array<unsigned char, PINFOLD_CUDA_HANDLE_BYTES> zeros{};
  EXPECT_EQ(pinfold_release_id_of(zeros.data(), zeros.size(), &id), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(pinfold_release_id_of(nullptr, one.handle.size(), &id), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_id_of(one.handle.data(), one.handle.size(), nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(id.exporter, 1U);
  EXPECT_EQ(id.serial, 2U);
}

TEST_F(c_carried_release, a_forked_child_has_no_part_in_it) {
  const auto asks = request(one);
  limit.reset();  // its thread
  run_in_child([&] {
    pinfold_retire_report seen{};
    seen.size = sizeof seen;
    EXPECT_EQ(receive(asks), PINFOLD_E_UNSUPPORTED);
    EXPECT_EQ(pinfold_release_listener_progress(listener), PINFOLD_E_UNSUPPORTED);
    EXPECT_EQ(counts().requests, 0U);
    EXPECT_EQ(pinfold_release_registry_add(registry, 99), PINFOLD_E_UNSUPPORTED);
    EXPECT_EQ(pinfold_release_registry_wait(registry, one.id.serial, 0, &seen), PINFOLD_E_UNSUPPORTED);
    EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
    EXPECT_EQ(pinfold_release_listener_destroy(listener), PINFOLD_OK);
    pinfold_release_registry_destroy(registry);
  });
  EXPECT_TRUE(channel.empty());
  EXPECT_EQ(receive(asks), PINFOLD_OK);
}

TEST(c_carried_release_in_containers, a_child_with_the_pid_of_its_parent_destroys_its_copy_of_a_used_listener) {
  const auto status = in_process_1([] {
    const auto send = [](void*, std::uint64_t, const void*, std::size_t, pinfold_error*) -> int { return PINFOLD_OK; };
    pinfold_release_listener* listener = nullptr;
    pinfold_cache* cache = nullptr;
    if (pinfold_release_listener_create(send, nullptr, &listener) != PINFOLD_OK) return -2;
    if (pinfold_create_memfd_carried(listener, 0, nullptr, &cache) != PINFOLD_OK) return -3;
    const int ended = in_another_process_1([&] { return pinfold_release_listener_destroy(listener); });
    if (pinfold_release_listener_destroy(listener) != PINFOLD_E_IN_USE_CONFLICT) return -4;
    if (pinfold_destroy(cache) != PINFOLD_OK) return -5;
    return pinfold_release_listener_destroy(listener) == PINFOLD_OK ? ended : -6;
  });
  if (!status) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(*status, 0);
}

}  // namespace pinfold::testing::c_carried_release_test
