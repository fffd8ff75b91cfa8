// SPDX-License-Identifier: BSD-3-Clause
// Bad input to the C interface gets a clear error and changes nothing.
#include "support/fixtures/c_fixture.hpp"
#include "support/processes/in_child.hpp"

#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {
namespace {

TEST(c_bad_input, null_is_refused_everywhere) {
  pinfold_cache* made = nullptr;
  const auto options = c_options();
  pinfold_statistics counters{};
  counters.size = sizeof counters;
  EXPECT_EQ(pinfold_create(nullptr, nullptr, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_import(nullptr, nullptr, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_mlock(&options, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_io_uring(nullptr, 0, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire(nullptr, &counters, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_find(nullptr, &counters, 1, 1).pin, 0U);
  EXPECT_EQ(pinfold_import(nullptr, 0, &counters, 8, 1, 1).pin, 0U);
  EXPECT_EQ(pinfold_find_import(nullptr, 0, &counters, 8, 1, 1).pin, 0U);
  EXPECT_EQ(pinfold_handle_bytes(nullptr), 0U);
  EXPECT_EQ(pinfold_release({}), PINFOLD_OK);
  EXPECT_EQ(pinfold_share({}).pin, 0U);
  EXPECT_EQ(pinfold_is_stale({}), 0);
  EXPECT_EQ(pinfold_is_closed({}), 1);
  EXPECT_EQ(pinfold_covered({}, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_registration_of({}), nullptr);
  EXPECT_EQ(pinfold_detach({}), nullptr);
  EXPECT_EQ(pinfold_release_registration(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_batch(nullptr, nullptr, 0, 1, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_batch(nullptr, 0), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_batch(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_chunks(nullptr, &counters, 1, 1, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_next_chunk(nullptr, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_end_chunks(nullptr);
  pinfold_announce_gone(nullptr, 0);
  EXPECT_EQ(pinfold_invalidate(nullptr, nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_invalidate_peer(nullptr, 0, 0, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_drop_peer(nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_unpersist(nullptr, nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_GT(pinfold_monitors(nullptr, nullptr, 0), 0U);
  EXPECT_EQ(pinfold_flush(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_quiesce(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_progress(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_evict(nullptr, 1), 0U);
  EXPECT_EQ(pinfold_statistics_of(nullptr, &counters), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_GT(pinfold_describe(nullptr, nullptr, 0), 0U);
  EXPECT_EQ(pinfold_dump(nullptr, [](void*, const pinfold_entry*) { return 0; }, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_destroy(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_options_init(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_options_from_environment(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_options_from_text(nullptr, ""), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_exporter_create(0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_allocate(nullptr, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_data(nullptr), nullptr);
  EXPECT_EQ(pinfold_memfd_size(nullptr), 0U);
  EXPECT_EQ(pinfold_memfd_handle(nullptr, nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_memfd_free(nullptr);
  pinfold_memfd_exporter_destroy(nullptr);
  EXPECT_EQ(pinfold_cuda_exporter_create(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_share(nullptr, 0, 0, nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_cuda_exporter_destroy(nullptr);
  pinfold_cache* cache = nullptr;
  EXPECT_EQ(pinfold_create_cuda_host(-1, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_cuda_ipc(-1, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_GT(pinfold_describe_error(nullptr, nullptr, 0), 0U);
}

TEST(c_bad_input, unknown_bits_and_numbers_are_refused) {
  c_fixture f;
  const auto expect_refused = [&](auto change) {
    auto options = c_options();
    change(options);
    pinfold_cache* made = f.cache;
    const auto table = f.device.table();
    EXPECT_EQ(pinfold_create(&table, &f.device, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
  };
  expect_refused([](pinfold_options& o) { o.flags = 1024; });
  expect_refused([](pinfold_options& o) { o.merge = 3; });
  expect_refused([](pinfold_options& o) { o.reserved = 1; });
  expect_refused([](pinfold_options& o) { o.monitor = 16; });
  expect_refused([](pinfold_options& o) { o.full = 3; });
  expect_refused([](pinfold_options& o) { std::memset(o.name, 'x', sizeof o.name); });
  expect_refused([](pinfold_options& o) { o.size = 0; });
  expect_refused([](pinfold_options& o) { --o.size; });
  for (const std::uint32_t access : {0U, 32U, 33U, 0xffffffffU}) {
    EXPECT_EQ(f.acquire(0x1000, 0x2000, access).pin, 0U);
    EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_find(f.cache, reinterpret_cast<void*>(0x1000), 1, access).pin, 0U);
  }
  pinfold_acquire_options how{};
  how.size = sizeof how;
  how.flags = 8;
  EXPECT_EQ(pinfold_acquire_with(f.cache, &how, 1, 1, &how).pin, 0U);
  how.flags = PINFOLD_FILE;
  how.file = -1;
  EXPECT_EQ(pinfold_acquire_with(f.cache, &how, 1, 1, &how).pin, 0U);
  how = {};
  EXPECT_EQ(pinfold_acquire_with(f.cache, &how, 1, 1, &how).pin, 0U) << "without a size";
  const pinfold_batch_options batch{};
  const pinfold_range where{0x1000, 1};
  pinfold_lease lease{};
  EXPECT_EQ(pinfold_acquire_batch(f.cache, &where, 1, 1, &batch, &lease), PINFOLD_E_INVALID_ARGUMENT);
  const pinfold_chunk_options pieces{};
  pinfold_chunks* chunks = nullptr;
  EXPECT_EQ(pinfold_acquire_chunks(f.cache, &how, 1, 1, &pieces, &chunks), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_memfd_exporter* exporter = nullptr;
  EXPECT_EQ(pinfold_memfd_exporter_create(4, &exporter), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_cache* made = nullptr;
  EXPECT_EQ(pinfold_create_memfd(8, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(f.device.device->calls, 0U);
  EXPECT_EQ(f.device.finished, 0) << "a cache that was not made does not own the application's object";
}

// What a newer program knows, and this library does not.
TEST(c_bad_input, longer_structure_is_accepted_while_the_rest_is_zero) {
  struct newer {
    pinfold_options known;
    std::uint64_t more;
  } options{c_options(), 0};
  options.known.size = sizeof options;
  c_device device;
  const auto table = device.table();
  pinfold_cache* made = nullptr;
  ASSERT_EQ(pinfold_create(&table, &device, &options.known, &made), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(made), PINFOLD_OK);
  options.more = 1;
  EXPECT_EQ(pinfold_create(&table, &device, &options.known, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
}

TEST(c_bad_input, bad_tables_are_refused) {
  const c_device device;
  const auto expect_refused = [&](auto change) {
    auto table = device.table();
    change(table);
    pinfold_cache* made = nullptr;
    EXPECT_EQ(pinfold_create(&table, nullptr, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  };
  expect_refused([](pinfold_registrar& t) { t.name = nullptr; });
  expect_refused([](pinfold_registrar& t) { t.open = nullptr; });
  expect_refused([](pinfold_registrar& t) { t.close = nullptr; });
  expect_refused([](pinfold_registrar& t) { t.granularity = 3; });
  expect_refused([](pinfold_registrar& t) { t.granularity = std::size_t{1} << 30U; });
  expect_refused([](pinfold_registrar& t) { t.access = 32; });
  expect_refused([](pinfold_registrar& t) { t.size = 8; });
}

TEST(c_bad_input, ranges_that_are_empty_or_wrap_around_are_refused) {
  c_fixture f;
  EXPECT_EQ(pinfold_acquire(f.cache, reinterpret_cast<void*>(0x1000), 0, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_acquire(f.cache, reinterpret_cast<void*>(0x1000), SIZE_MAX, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_invalidate(f.cache, nullptr, 0), PINFOLD_E_INVALID_RANGE);
  const pinfold_range wrong{UINT64_MAX, 2};
  pinfold_lease lease{};
  EXPECT_EQ(pinfold_acquire_batch(f.cache, &wrong, 1, 1, nullptr, &lease), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(f.device.device->calls, 0U);
}

TEST(c_bad_input, calls_of_the_other_kind_are_refused) {
  c_fixture f;
  const std::uint64_t handle = 0;
  EXPECT_EQ(pinfold_import(f.cache, 1, &handle, sizeof handle, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_drop_peer(f.cache, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_handle_bytes(f.cache), 0U);
}

TEST(c_bad_input, destroyed_cache_is_closed) {
  c_fixture f;
  pinfold_cache* const ended = std::exchange(f.cache, nullptr);
  EXPECT_EQ(pinfold_destroy(ended), PINFOLD_OK);
  EXPECT_EQ(pinfold_acquire(ended, &f, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_flush(ended), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_destroy(ended), PINFOLD_E_CLOSED);
  std::array<char, 64> text{};
  EXPECT_GT(pinfold_monitors(ended, text.data(), text.size()), 0U);
}

TEST(c_bad_input, R42_lease_that_outlives_its_cache_reads_as_closed) {
  auto options = c_options();
  options.drain_timeout_ms = 1;
  c_fixture f(options);
  const auto lease = f.acquire(0x1000, 0x2000);
  EXPECT_EQ(pinfold_destroy(std::exchange(f.cache, nullptr)), PINFOLD_OK);
  EXPECT_EQ(pinfold_is_closed(lease), 1);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
}

TEST(c_bad_input, second_release_of_a_hit_is_noticed) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  const auto hit = f.acquire(0x1000, 0x2000);
  EXPECT_EQ(pinfold_release(hit), PINFOLD_OK);
  EXPECT_EQ(pinfold_release(hit), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_bad_input, callback_that_calls_back_in_gets_an_error_and_hangs_nothing) {
  c_fixture f;
  int code = PINFOLD_OK;
  f.device.in_open = [&] {
    EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U) << "would wait for itself";
    code = last_code();
    EXPECT_EQ(pinfold_flush(f.cache), PINFOLD_E_IN_USE_CONFLICT);
    EXPECT_EQ(pinfold_destroy(f.cache), PINFOLD_E_IN_USE_CONFLICT);
    EXPECT_EQ(f.counters().opens, 0U) << "reading is allowed";
    EXPECT_EQ(pinfold_invalidate(f.cache, reinterpret_cast<void*>(0x9000), 1), PINFOLD_OK);
  };
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  EXPECT_EQ(code, PINFOLD_E_IN_USE_CONFLICT);
}

TEST(c_bad_input, stream_of_chunks_is_not_ended_by_a_callback_and_keeps_its_cache) {
  c_fixture f;
  pinfold_chunks* chunks = nullptr;
  std::atomic<pinfold_chunks*> known{nullptr};
  std::atomic<int> refused{0};
  f.device.in_open = [&] {
    if (known != nullptr && pinfold_end_chunks(known) == PINFOLD_E_IN_USE_CONFLICT) ++refused;
  };
  pinfold_chunk_options how{};
  how.size = sizeof how;
  how.chunk_bytes = 0x1000;
  how.depth = 1;
  ASSERT_EQ(pinfold_acquire_chunks(f.cache, reinterpret_cast<void*>(0x10000), 0x8000, c_local_access, &how, &chunks),
            PINFOLD_OK);
  known = chunks;
  pinfold_range where{};
  pinfold_lease lease{};
  while (pinfold_next_chunk(chunks, &where, &lease) == PINFOLD_OK) EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(pinfold_destroy(f.cache), PINFOLD_E_IN_USE_CONFLICT) << "the stream still uses it";
  EXPECT_TRUE(f.cached(0x10000, 0x11000)) << "nothing happened";
  EXPECT_EQ(pinfold_end_chunks(chunks), PINFOLD_OK);
  how.chunk_bytes = 1;
  EXPECT_EQ(
      pinfold_acquire_chunks(f.cache, reinterpret_cast<void*>(0x10000), SIZE_MAX / 2, c_local_access, &how, &chunks),
      PINFOLD_E_TOO_LARGE);
}

TEST(c_bad_input, size_that_was_never_set_is_refused) {
  const c_device device;
  const auto table = device.table();
  pinfold_cache* made = nullptr;
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 100, std::size_t{1} << 40U, std::size_t{4097}}) {
    auto options = c_options();
    options.size = size;
    EXPECT_EQ(pinfold_create(&table, nullptr, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_options_init(&options, size), PINFOLD_E_INVALID_ARGUMENT);
  }
}

TEST(c_bad_input, program_of_a_newer_version_initializes_its_longer_options) {
  struct newer {
    pinfold_options known;
    std::uint64_t more = 7;
  } options;
  ASSERT_EQ(pinfold_options_init(&options.known, sizeof options), PINFOLD_OK);
  EXPECT_EQ(options.known.size, sizeof options);
  EXPECT_EQ(options.more, 0U);
}

TEST(c_bad_input, address_that_is_no_registration_is_refused) {
  c_fixture f;
  const auto lease = f.acquire(0x1000, 0x2000);
  alignas(16384) static std::array<std::byte, 16384> elsewhere;  // the library looks at the beginning of such a block
  std::memcpy(elsewhere.data() + 4096, pinfold_registration_of(lease), sizeof(pinfold_registration));
  EXPECT_EQ(pinfold_release_registration(elsewhere.data() + 4096), PINFOLD_E_INVALID_ARGUMENT) << "a copy";
  const auto* inside = static_cast<const std::byte*>(pinfold_registration_of(lease)) + 8;
  EXPECT_EQ(pinfold_release_registration(inside), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registration(reinterpret_cast<void*>(24)), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
}

TEST(c_bad_input, exception_from_the_function_of_dump_is_a_failure) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  EXPECT_EQ(
      pinfold_dump(f.cache, [](void*, const pinfold_entry*) -> int { throw 42; }, nullptr), PINFOLD_E_DRIVER_ERROR);
  const auto destroy = [](void* cache, const pinfold_entry*) {
    return pinfold_destroy(static_cast<pinfold_cache*>(cache));
  };
  EXPECT_EQ(pinfold_dump(f.cache, destroy, f.cache), PINFOLD_E_IN_USE_CONFLICT);
}

// glibc ends a process whose `catch (...)` keeps a cancellation, and one where it reaches a function that is noexcept.
TEST(c_bad_input, thread_that_is_cancelled_in_a_callback_finishes_the_call) {
  c_device on;
  auto table = on.table();
  table.still_is = [](void*, const pinfold_registration*, const void*, size_t) {
    ::usleep(1000);  // a cancellation point
    return 1;
  };
  c_fixture f(c_options(), table);
  std::atomic<bool> began{false};
  std::atomic<int> code{1};
  pthread_t thread{};
  struct shared {
    c_fixture& f;
    std::atomic<bool>& began;
    std::atomic<int>& code;
  } all{f, began, code};
  const auto body = [](void* of) -> void* {
    auto& in = *static_cast<shared*>(of);
    in.began = true;
    ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, nullptr);
    while (true) {
      in.code = pinfold_release(in.f.acquire(0x1000, 0x2000));
      ::pthread_testcancel();
    }
  };
  ASSERT_EQ(::pthread_create(&thread, nullptr, body, &all), 0);
  while (!began) std::this_thread::yield();
  ::usleep(5000);
  EXPECT_EQ(::pthread_cancel(thread), 0);
  void* ended = nullptr;
  EXPECT_EQ(::pthread_join(thread, &ended), 0);
  EXPECT_EQ(ended, PTHREAD_CANCELED);
  EXPECT_EQ(code, PINFOLD_OK);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_bad_input, child_of_fork_is_told_that_the_cache_is_its_parents) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  run_in_child([&] {
    EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
    EXPECT_EQ(last_code(), PINFOLD_E_CLOSED);
    EXPECT_EQ(pinfold_invalidate(f.cache, &f, 1), PINFOLD_E_CLOSED);
    EXPECT_EQ(pinfold_flush(f.cache), PINFOLD_E_CLOSED);
    EXPECT_EQ(pinfold_destroy(f.cache), PINFOLD_OK) << "the child's copy";
  });
  EXPECT_TRUE(f.cached(0x1000, 0x2000));
}

TEST(c_bad_input, sink_is_told_that_it_is_not_called_any_more) {
  struct counts {
    int finished = 0;
    int code = 1;
    pinfold_cache* cache = nullptr;
  } all;
  auto options = c_options();
  options.flags = PINFOLD_STATISTICS_AT_EXIT;
  options.sink = [](void* self, const pinfold_event*) {
    auto& to = *static_cast<counts*>(self);
    pinfold_statistics now{};
    now.size = sizeof now;
    to.code = pinfold_statistics_of(to.cache, &now);
  };
  options.sink_self = &all;
  options.sink_finished = [](void* self) { ++static_cast<counts*>(self)->finished; };
  c_device device;
  const auto table = device.table();
  auto wrong = table;
  wrong.granularity = 3;
  EXPECT_EQ(pinfold_create(&wrong, &device, &options, &all.cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(all.finished, 0);
  ASSERT_EQ(pinfold_create(&table, &device, &options, &all.cache), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(all.cache), PINFOLD_OK);
  EXPECT_EQ(all.finished, 1);
  EXPECT_EQ(all.code, PINFOLD_OK) << "a sink may read the statistics at the end, too";
}

TEST(c_bad_input, callback_may_use_another_cache) {
  c_fixture other;
  c_fixture f;
  f.device.in_open = [&] { EXPECT_EQ(pinfold_release(other.acquire(0x1000, 0x2000)), PINFOLD_OK); };
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  EXPECT_EQ(other.counters().opens, 1U);
}

TEST(c_bad_input, exception_from_a_callback_is_a_failure) {
  c_fixture f;
  f.device.in_open = [] { throw std::runtime_error("from C++"); };
  EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_DRIVER_ERROR);
  f.device.in_open = [] {};
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
}

TEST(c_bad_input, code_that_is_none_is_a_driver_error) {
  c_device device;
  auto table = device.table();
  table.open = [](void*, const pinfold_open_request*, pinfold_registration*, pinfold_error*) { return 12345; };
  c_fixture f(c_options(), table);
  EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_DRIVER_ERROR);
  EXPECT_STREQ(pinfold_last_error()->message, "the registrar's open failed");
}

TEST(c_bad_input, settings_text_changes_options_or_nothing) {
  auto options = c_options();
  const auto before = options;
  EXPECT_EQ(pinfold_options_from_text(&options, "PINFOLD_MAX_COUNT=7\nPINFOLD_WHEN_FULL=wait\n"), PINFOLD_OK);
  EXPECT_EQ(options.max_count, 7U);
  EXPECT_EQ(options.full, static_cast<std::uint32_t>(PINFOLD_FULL_WAIT));
  options = before;
  EXPECT_EQ(pinfold_options_from_text(&options, "PINFOLD_MAX_COUNT=7\nPINFOLD_NONSENSE=1\n"),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(std::memcmp(&options, &before, sizeof options), 0);
  EXPECT_NE(std::strstr(pinfold_last_error()->message, "PINFOLD_NONSENSE"), nullptr) << pinfold_last_error()->message;
}

TEST(c_bad_input, codes_have_names) {
  EXPECT_STREQ(pinfold_error_name(PINFOLD_OK), "ok");
  EXPECT_STREQ(pinfold_error_name(PINFOLD_E_CLOSED), "closed");
  EXPECT_STREQ(pinfold_error_name(PINFOLD_E_INVALID_RANGE), "invalid_range");
  EXPECT_STREQ(pinfold_error_name(1), "unknown");
  EXPECT_STREQ(pinfold_error_name(-17), "unknown");
  EXPECT_STREQ(pinfold_event_name(-1), "unknown");
  EXPECT_EQ(pinfold_version(), PINFOLD_API_VERSION);
}

}  // namespace
}  // namespace pinfold::testing
