// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/handle.hpp"
#include "os/page_bytes.hpp"
#include "support/host/process_limits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <set>
#include <sys/mman.h>

namespace memfd_exporter_test {
namespace {

using pinfold::errc;
using pinfold::memfd_access;
using pinfold::memfd_buffer;
using pinfold::memfd_exporter;

const std::size_t page = pinfold::os::page_bytes();

TEST(memfd_exporter, a_buffer_is_zeroed_writable_and_whole_pages) {
  auto exporter = memfd_exporter::create().value();
  const auto buffer = exporter.allocate(page + 1).value();
  EXPECT_EQ(buffer.size(), 2 * page);
  EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(), [](std::byte b) { return b == std::byte{}; }));
  buffer.data()[buffer.size() - 1] = std::byte{7};
}

TEST(memfd_exporter, handle_describes_its_buffer) {
  auto exporter = memfd_exporter::create().value();
  const auto buffer = exporter.allocate(page).value();
  const auto& handle = buffer.handle();
  EXPECT_EQ(pinfold::memfd::checked(handle).value(), handle.allocation());
  EXPECT_EQ(handle.base, reinterpret_cast<std::uintptr_t>(buffer.data()));
  EXPECT_EQ(handle.size, buffer.size());
  EXPECT_EQ(handle.exporter, exporter.id());
  EXPECT_EQ(handle.descriptor, buffer.descriptor());
  EXPECT_EQ(handle.pid, ::getpid());
}

TEST(memfd_exporter, size_and_seals_are_final) {
  auto exporter = memfd_exporter::create().value();
  const auto buffer = exporter.allocate(page).value();
  const int expected = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE;
  EXPECT_EQ(::fcntl(buffer.descriptor(), F_GET_SEALS) & expected, expected);
  EXPECT_NE(::ftruncate(buffer.descriptor(), 0), 0);
  EXPECT_EQ(::fallocate(buffer.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
}

TEST(memfd_exporter, limit_on_the_size_of_files_is_an_error) {
  auto exporter = memfd_exporter::create().value();
  const pinfold::testing::lowered_limit low(RLIMIT_FSIZE, page);
  EXPECT_TRUE(exporter.allocate(page));
  const auto refused = exporter.allocate(2 * page);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::out_of_resources);
  EXPECT_EQ(refused.error().native, EFBIG);
}

TEST(memfd_exporter, read_write_buffers_lack_only_the_seal_against_writes) {
  auto exporter = memfd_exporter::create({.access = memfd_access::read_write}).value();
  const auto buffer = exporter.allocate(page).value();
  const int seals = ::fcntl(buffer.descriptor(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE), 0);
}

TEST(memfd_exporter, impossible_sizes_and_addresses_are_refused_without_leaks) {
  auto exporter = memfd_exporter::create().value();
  const int before = pinfold::testing::open_descriptors();
  for (const std::size_t bytes : {std::size_t{0}, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 - page + 1}) {
    EXPECT_EQ(exporter.allocate(bytes).error(), errc::invalid_range) << bytes;
  }
  EXPECT_EQ(exporter.allocate(page, reinterpret_cast<void*>(page + 8)).error(), errc::invalid_range);
  EXPECT_EQ(exporter.allocate(2 * page, reinterpret_cast<void*>(0 - page)).error(), errc::invalid_range);
  EXPECT_EQ(exporter.allocate(std::size_t{1} << 60U).error(), errc::out_of_resources);
  EXPECT_EQ(pinfold::testing::open_descriptors(), before);
}

TEST(memfd_exporter, allocates_at_the_requested_address_or_returns_in_use_conflict) {
  auto exporter = memfd_exporter::create().value();
  void* const place = reinterpret_cast<void*>(pinfold::testing::quiet_address);
  {
    const auto first = exporter.allocate(4 * page, place).value();
    EXPECT_EQ(first.data(), place);
    const int before = pinfold::testing::open_descriptors();
    const auto refused = exporter.allocate(page, first.data() + page);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), errc::in_use_conflict);
    EXPECT_EQ(refused.error().native, EEXIST);
    EXPECT_EQ(pinfold::testing::open_descriptors(), before);
  }
  const auto again = exporter.allocate(2 * page, place);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->data(), place);
}

TEST(memfd_exporter, handles_are_unique_when_addresses_and_descriptors_repeat) {
  auto exporter = memfd_exporter::create().value();
  std::set<std::uint64_t> serials;
  void* const place = reinterpret_cast<void*>(pinfold::testing::quiet_address);
  int descriptor = -1;
  for (int i = 0; i < 100; ++i) {
    const auto buffer = exporter.allocate(page, place).value();
    EXPECT_TRUE(i == 0 || buffer.descriptor() == descriptor);
    descriptor = buffer.descriptor();
    EXPECT_TRUE(serials.insert(buffer.handle().serial).second);
  }
  EXPECT_NE(memfd_exporter::create().value().id(), exporter.id());
}

TEST(memfd_exporter, buffers_outlive_the_exporter_and_leak_nothing) {
  const int descriptors = pinfold::testing::open_descriptors();
  const int mappings = pinfold::testing::memfd_mappings();
  memfd_buffer kept;
  {
    auto exporter = memfd_exporter::create({.serve = true}).value();
    kept = exporter.allocate(page).value();
  }
  kept.data()[0] = std::byte{1};
  kept = memfd_buffer();
  EXPECT_EQ(pinfold::testing::open_descriptors(), descriptors);
  EXPECT_EQ(pinfold::testing::memfd_mappings(), mappings);
}

TEST(memfd_exporter, moved_from_buffer_and_exporter_are_empty) {
  auto exporter = memfd_exporter::create().value();
  auto buffer = exporter.allocate(page).value();
  const auto taken = std::move(buffer);
  const auto owner = std::move(exporter);
  // NOLINTBEGIN(bugprone-use-after-move): the header says what these give
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0U);
  EXPECT_EQ(buffer.descriptor(), -1);
  EXPECT_EQ(buffer.handle(), pinfold::memfd_handle{});
  EXPECT_EQ(exporter.id(), 0U);
  EXPECT_EQ(exporter.allocate(page).error(), errc::closed);
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_NE(taken.data(), nullptr);
}

TEST(memfd_exporter, runs_out_of_descriptors_without_leaking_any) {
  auto exporter = memfd_exporter::create().value();
  const int before = pinfold::testing::open_descriptors();
  {
    const pinfold::testing::lowered_limit none(RLIMIT_NOFILE, 0);
    EXPECT_EQ(exporter.allocate(page).error(), errc::out_of_resources);
    EXPECT_FALSE(memfd_exporter::create({.serve = true}));
  }
  EXPECT_EQ(pinfold::testing::open_descriptors(), before);
  EXPECT_TRUE(exporter.allocate(page));
}

}  // namespace
}  // namespace memfd_exporter_test
