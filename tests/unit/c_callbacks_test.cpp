// SPDX-License-Identifier: BSD-3-Clause
// Callbacks of the C interface: what they may call, what their failures become, and when the last one comes.
#include "support/fixtures/c_fixture.hpp"

#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <atomic>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::c_callbacks_test {
namespace {

TEST(c_callbacks, callback_that_calls_back_in_gets_an_error_and_hangs_nothing) {
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

TEST(c_callbacks, stream_of_chunks_is_not_ended_by_a_callback_and_keeps_its_cache) {
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

TEST(c_callbacks, exception_from_the_function_of_dump_is_a_failure) {
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
TEST(c_callbacks, thread_that_is_cancelled_in_a_callback_finishes_the_call) {
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

TEST(c_callbacks, sink_is_told_that_it_is_not_called_any_more) {
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

TEST(c_callbacks, callback_may_use_another_cache) {
  c_fixture other;
  c_fixture f;
  f.device.in_open = [&] { EXPECT_EQ(pinfold_release(other.acquire(0x1000, 0x2000)), PINFOLD_OK); };
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  EXPECT_EQ(other.counters().opens, 1U);
}

TEST(c_callbacks, exception_from_a_callback_is_a_failure) {
  c_fixture f;
  f.device.in_open = [] { throw std::runtime_error("from C++"); };
  EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_DRIVER_ERROR);
  f.device.in_open = [] {};
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
}

TEST(c_callbacks, code_that_is_none_is_a_driver_error) {
  c_device device;
  auto table = device.table();
  table.open = [](void*, const pinfold_open_request*, pinfold_registration*, pinfold_error*) { return 12345; };
  c_fixture f(c_options(), table);
  EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_DRIVER_ERROR);
  EXPECT_STREQ(pinfold_last_error()->message, "the registrar's open failed");
}

}  // namespace
}  // namespace pinfold::testing::c_callbacks_test
