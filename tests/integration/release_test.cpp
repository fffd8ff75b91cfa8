// SPDX-License-Identifier: BSD-3-Clause
// An exporter and importers in processes of their own agree that memory may be freed (R66).
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/host/pattern.hpp"
#include "support/processes/importer_peer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace pinfold::testing {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t bytes = 16384;

/// An exporter in this process; importers in others, which were made before it had threads.
class release : public ::testing::Test {
 protected:
  void SetUp() override { exporter = memfd_exporter::create({.release = true}).value(); }

  memfd_buffer filled(std::uint32_t seed) {
    auto made = exporter->allocate(bytes).value();
    write_pattern(made.data(), made.size(), seed);
    return made;
  }

  importer_peer first;
  importer_peer second;
  std::optional<memfd_exporter> exporter;
};

}  // namespace

TEST_F(release, R66_memory_without_importers_is_freed_at_once) {
  const auto report = exporter->retire(filled(1), 1s).value();
  EXPECT_TRUE(report.all_let_go());
  EXPECT_EQ(report.let_go, 0U);
  EXPECT_EQ(exporter->retirements().freed, 1U);
}

TEST_F(release, R66_idle_importers_let_go_and_do_not_get_it_again) {
  auto buffer = filled(7);
  const auto handle = buffer.handle();
  EXPECT_TRUE(first.reads(handle, 7));
  EXPECT_TRUE(second.reads(handle, 7));
  const auto report = exporter->retire(std::move(buffer), 5s).value();
  EXPECT_TRUE(report.all_let_go());
  EXPECT_EQ(report.let_go, 2U);
  for (importer_peer* one : {&first, &second}) {
    EXPECT_FALSE(one->finds(handle));
    EXPECT_EQ(one->acquire_error(handle), errc::stale_handle);
    EXPECT_EQ(one->open_mappings(), 0U);
  }
}

TEST_F(release, R66_a_lease_keeps_memory_in_limbo_until_its_release) {
  auto buffer = filled(7);
  const auto handle = buffer.handle();
  ASSERT_TRUE(first.lease(handle));
  const auto report = exporter->begin_retire(std::move(buffer), 100ms).value();
  const auto seen = report.wait(300ms).value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].state, release_state::leased);
  EXPECT_EQ(seen.holders[0].pid, first.process().pid());
  EXPECT_EQ(seen.state, retire_state::limbo);
  EXPECT_EQ(exporter->retirements().limbo_bytes, bytes);
  EXPECT_TRUE(first.lease_holds(7));
  EXPECT_FALSE(first.finds(handle));
  first.release();
  EXPECT_TRUE(report.wait(5s).value().all_let_go());
  EXPECT_EQ(exporter->retirements().limbo_bytes, 0U);
}

TEST_F(release, R66_a_killed_importer_is_not_waited_for) {
  auto buffer = filled(7);
  ASSERT_TRUE(first.lease(buffer.handle()));
  const auto ticket = exporter->begin_retire(std::move(buffer), 10s).value();
  first.process().kill();
  const auto seen = ticket.wait(5s).value();
  EXPECT_TRUE(seen.all_let_go());
  EXPECT_EQ(seen.died, 1U);
}

TEST_F(release, R66_a_stopped_importer_is_reported_at_the_deadline) {
  auto buffer = filled(7);
  EXPECT_TRUE(first.reads(buffer.handle(), 7));
  first.process().stop();
  const auto seen = exporter->retire(std::move(buffer), 100ms).value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].state, release_state::silent);
  first.process().go_on();
}

}  // namespace pinfold::testing
