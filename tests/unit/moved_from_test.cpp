// SPDX-License-Identifier: BSD-3-Clause
// Objects that were moved from, and leases that hold nothing: each member gives an answer, and none touches missing
// state.
#include "support/doubles/fake_importer.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/cache_set.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/monitors/server.hpp>
#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/registrars/io_uring.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/trace_file.hpp>

#include <array>
#include <filesystem>
#include <stdexcept>
#include <unistd.h>

namespace pinfold::testing::moved_from_test {
namespace {

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested

auto* const memory = reinterpret_cast<void*>(0x10000);

TEST(moved_from, R42_moved_from_cache_finds_nothing_in_its_successor) {
  local_fixture f;
  f.touch(0x10000, 0x11000);
  f.touch(0x10000, 0x11000);  // the thread's hint
  const auto became = std::move(f.cache);
  EXPECT_EQ(f.acquire(0x10000, 0x11000).error(), errc::closed);
  EXPECT_EQ(f.acquire(0x20000, 0x21000).error(), errc::closed);
  EXPECT_FALSE(f.cached(0x10000, 0x11000));
  EXPECT_EQ(became.statistics().leases_now, 0U);
}

TEST(moved_from, R42_moved_from_cache_finds_nothing_after_its_successor_ended) {
  local_fixture f;
  f.touch(0x10000, 0x11000);
  f.touch(0x10000, 0x11000);
  {
    const auto became = std::move(f.cache);
  }
  EXPECT_EQ(f.acquire(0x10000, 0x11000).error(), errc::closed);
  EXPECT_FALSE(f.cached(0x10000, 0x11000));
}

TEST(moved_from, every_function_of_a_moved_from_cache_returns_closed) {
  local_fixture f;
  const auto became = std::move(f.cache);
  const std::array some{range{0x10000, 0x11000}};
  EXPECT_EQ(f.cache.acquire_batch(some).error(), errc::closed);
  EXPECT_EQ(f.cache.acquire_chunks(memory, 0x1000).error(), errc::closed);
  EXPECT_EQ(f.cache.acquire(memory, 0x1000, local_access, {.persistent = true}).error(), errc::closed);
  EXPECT_EQ(f.cache.flush().error(), errc::closed);
  EXPECT_EQ(f.cache.quiesce().error(), errc::closed);
  EXPECT_EQ(f.cache.progress().error(), errc::closed);
  EXPECT_EQ(f.cache.statistics().acquires, 0U);
  EXPECT_TRUE(f.cache.dump().empty());
  EXPECT_EQ(f.cache.monitors(), "none: the cache was moved from");
  f.cache.invalidate(memory, 0x1000);
  f.cache.unpersist(memory, 0x1000);
  EXPECT_THROW(static_cast<void>(f.cache.backend()), std::logic_error);
}

TEST(moved_from, moved_from_cache_can_be_moved_again_and_assigned_to) {
  local_fixture f;
  auto became = std::move(f.cache);
  auto nothing = std::move(f.cache);
  EXPECT_EQ(nothing.flush().error(), errc::closed);
  f.cache = std::move(became);
  f.touch(0x10000, 0x11000);
  EXPECT_TRUE(f.cached(0x10000, 0x11000));
  f.cache = std::move(nothing);
  EXPECT_EQ(f.device->open_count(), 0U) << "what it had is closed";
  EXPECT_EQ(f.acquire(0x10000, 0x11000).error(), errc::closed);
}

TEST(moved_from, every_function_of_a_moved_from_import_cache_returns_closed) {
  const auto world = std::make_shared<fake_world>();
  const auto handle = world->allocate(1, 0x10000, 64);
  import_cache first(fake_importer{world});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(first.acquire({1}, handle, 0x10000, 64));
  {
    const auto second = std::move(first);
    EXPECT_EQ(first.acquire({1}, handle, 0x10000, 64).error(), errc::closed);
  }
  EXPECT_EQ(first.acquire({1}, handle, 0x10000, 64).error(), errc::closed);
  EXPECT_FALSE(first.find({1}, handle, 0x10000, 64));
  first.invalidate({1}, handle.allocation());
  EXPECT_EQ(first.drop_peer({1}).error(), errc::closed);
  EXPECT_EQ(first.flush().error(), errc::closed);
  EXPECT_TRUE(first.dump().empty());
  EXPECT_EQ(first.statistics().opens, 0U);
  EXPECT_THROW(static_cast<void>(first.backend()), std::logic_error);
}

TEST(moved_from, pool_over_a_moved_from_cache_returns_closed) {
  cache first(null_registrar{}, keeping());
  registered_pool pool(first);
  const auto second = std::move(first);
  EXPECT_EQ(pool.allocate_registered(64).error(), errc::closed);
}

TEST(moved_from, set_with_a_moved_from_cache_returns_closed) {
  local_fixture f;
  const std::array members{&f.cache};
  cache_set<fake_registrar> set(members);
  const auto became = std::move(f.cache);
  EXPECT_EQ(set.acquire(memory, 0x1000).error(), errc::closed);
}

// Expects that one lease moves on, and that neither object has more.
template <class Leases>
void expect_one_moves(Leases& from) {
  const auto taken = std::move(from);
  EXPECT_EQ(from.size(), 0U);
  EXPECT_FALSE(from[0]);
  EXPECT_TRUE(taken[0]);
  EXPECT_FALSE(taken[1]);
}

TEST(moved_from, moved_from_set_has_no_caches) {
  local_fixture f;
  const std::array members{&f.cache};
  cache_set<fake_registrar> set(members);
  auto taken = std::move(set);
  EXPECT_EQ(set.acquire(memory, 0x1000).error(), errc::closed);
  EXPECT_EQ(set.size(), 0U);
  set.invalidate(memory, 0x1000);
  auto leases = taken.acquire(memory, 0x1000);
  ASSERT_TRUE(leases);
  expect_one_moves(*leases);
}

TEST(moved_from, moved_from_batch_has_empty_leases) {
  local_fixture f;
  const std::array some{range{0x10000, 0x11000}};
  auto batch = f.cache.acquire_batch(some);
  ASSERT_TRUE(batch);
  expect_one_moves(*batch);
  EXPECT_FALSE(batch_lease<fake_registrar>()[0]);
}

TEST(moved_from, moved_from_monitor_server_serves_nothing) {
  const auto socket = std::filesystem::temp_directory_path() / ("pinfold-moved-" + std::to_string(::getpid()));
  auto started = monitor_server::start({.socket = socket.string()});
  if (!started) GTEST_SKIP() << describe(started.error());
  const auto taken = std::move(*started);
  started->stop();
  started->run();
}

TEST(moved_from, moved_from_trace_file_records_nothing) {
  const auto path = std::filesystem::temp_directory_path() / ("pinfold-moved-trace-" + std::to_string(::getpid()));
  auto file = trace_file::open(path.string());
  ASSERT_TRUE(file);
  std::filesystem::remove(path);
  const auto taken = std::move(*file);
  EXPECT_EQ(file->flush().error(), errc::closed);
  const auto sink = file->sink("nothing");
  sink(event{event_kind::requested, severity::info});
}

// NOLINTEND(bugprone-use-after-move)

TEST(empty_lease, has_an_empty_handle) {
  EXPECT_EQ(lease<fake_registrar>().registration().key, 0U);
  EXPECT_EQ(import_lease<fake_importer>().registration().id, 0U);
  EXPECT_EQ(pool_lease<fake_registrar>().registration().key, 0U);
  local_fixture f;
  auto lease = f.acquire(0x10000, 0x11000);
  ASSERT_TRUE(lease);
  ASSERT_TRUE(lease->release());
  EXPECT_EQ(lease->registration().key, 0U);
}

TEST(empty_lease, io_uring_lease_names_no_buffer) {
  EXPECT_EQ(lease<io_uring_registrar>().registration().index, UINT32_MAX) << "0 is the first buffer of the table";
}

}  // namespace
}  // namespace pinfold::testing::moved_from_test
