// SPDX-License-Identifier: BSD-3-Clause
// An exporter and importers in processes of their own agree that memory may be freed (R66).
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/registry.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/host/pattern.hpp"
#include "support/processes/importer_peer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::release_test {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t bytes = 16384;
constexpr auto ample = 60s;  // for what another process does, on a busy machine

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
  const auto report = exporter->retire(std::move(buffer), ample).value();
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
  auto seen = report.wait(100ms).value();
  for (const auto end = std::chrono::steady_clock::now() + ample; seen.holders.size() == 1 &&
                                                                  seen.holders[0].state == release_state::silent &&
                                                                  std::chrono::steady_clock::now() < end;)
    seen = report.wait(10ms).value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].state, release_state::leased);
  EXPECT_EQ(seen.holders[0].pid, first.process().pid());
  EXPECT_EQ(seen.state, retire_state::limbo);
  EXPECT_EQ(exporter->retirements().limbo_bytes, bytes);
  EXPECT_TRUE(first.lease_holds(7));
  EXPECT_FALSE(first.finds(handle));
  first.release();
  EXPECT_TRUE(report.wait(ample).value().all_let_go());
  EXPECT_EQ(exporter->retirements().limbo_bytes, 0U);
}

/// Leaves the process room for some more descriptors; undone at the end.
class few_descriptors {
 public:
  few_descriptors(pid_t process, rlim_t more) : process_(process) {
    const std::filesystem::path all("/proc/" + std::to_string(process) + "/fd");
    const auto is_free = [&](rlim_t number) { return !std::filesystem::is_symlink(all / std::to_string(number)); };
    rlim_t limit = 0;
    for (rlim_t free = 0; free < more; ++limit) free += is_free(limit) ? 1 : 0;
    EXPECT_EQ(::prlimit(process_, RLIMIT_NOFILE, nullptr, &before_), 0);
    const rlimit lower{limit, before_.rlim_max};
    EXPECT_EQ(::prlimit(process_, RLIMIT_NOFILE, &lower, nullptr), 0);
  }
  few_descriptors(const few_descriptors&) = delete;
  few_descriptors& operator=(const few_descriptors&) = delete;
  ~few_descriptors() { ::prlimit(process_, RLIMIT_NOFILE, &before_, nullptr); }

 private:
  pid_t process_;
  rlimit before_{};
};

TEST_F(release, R66_an_importer_of_many_exporters_needs_descriptors_only_for_memory_that_it_has_open) {
  std::vector<memfd_exporter> exporters;
  std::vector<memfd_buffer> buffers;
  for (std::uint32_t i = 0; i < 16; ++i) {
    exporters.push_back(memfd_exporter::create({.release = true}).value());
    buffers.push_back(exporters.back().allocate(bytes).value());
    write_pattern(buffers.back().data(), bytes, i);
  }
  ASSERT_TRUE(first.lease(buffers[0].handle()));
  {
    const few_descriptors limit(first.process().pid(), 12);
    for (int round = 0; round < 2; ++round)
      for (std::uint32_t i = 1; i < buffers.size(); ++i) EXPECT_TRUE(first.reads(buffers[i].handle(), i)) << i;
    EXPECT_TRUE(first.lease_holds(0));
  }
  first.release();
  for (std::uint32_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(exporters[i].retire(std::move(buffers[i]), ample).value().all_let_go()) << i;
}

TEST_F(release, R66_a_killed_importer_is_not_waited_for) {
  auto buffer = filled(7);
  ASSERT_TRUE(first.lease(buffer.handle()));
  const auto ticket = exporter->begin_retire(std::move(buffer), 10s).value();
  first.process().kill();
  const auto seen = ticket.wait(ample).value();
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

TEST_F(release, R66_memory_over_the_limbo_budget_is_freed_and_reported) {
  exporter = memfd_exporter::create({.release = true, .limbo_bytes = bytes}).value();
  auto older = filled(7);
  auto newer = filled(8);
  ASSERT_TRUE(first.lease(older.handle()));
  ASSERT_TRUE(second.lease(newer.handle()));
  const auto one = exporter->begin_retire(std::move(older), 0ms).value();
  const auto other = exporter->begin_retire(std::move(newer), 0ms).value();
  EXPECT_EQ(one.wait(ample).value().state, retire_state::over_budget);
  EXPECT_EQ(one.wait(ample).value().holders.size(), 1U);
  EXPECT_EQ(other.wait(100ms).value().state, retire_state::limbo);
  EXPECT_EQ(exporter->retirements().freed_over_budget, 1U);
  EXPECT_TRUE(first.lease_holds(7));  // its mapping keeps the pages
}

TEST_F(release, R66_the_end_of_the_exporter_ends_the_wait) {
  auto buffer = filled(7);
  const auto handle = buffer.handle();
  ASSERT_TRUE(first.lease(handle));
  const auto ticket = exporter->begin_retire(std::move(buffer), 10s).value();
  exporter.reset();
  const auto seen = ticket.wait(ample).value();
  EXPECT_EQ(seen.state, retire_state::abandoned);
  EXPECT_EQ(seen.holders.size(), 1U);
  EXPECT_TRUE(first.lease_holds(7));
  first.release();
}

TEST_F(release, R66_a_buffer_that_cannot_be_retired_stays_with_its_owner) {
  auto plain = memfd_exporter::create().value();
  auto buffer = plain.allocate(bytes).value();
  EXPECT_EQ(plain.retire(std::move(buffer), 1s).error(), errc::unsupported);
  EXPECT_EQ(exporter->retire(std::move(buffer), 1s).error(), errc::invalid_argument);
  EXPECT_NE(buffer.data(), nullptr);
  EXPECT_EQ(first.acquire_error(buffer.handle()), errc::unsupported);
  EXPECT_EQ(exporter->retire(memfd_buffer(), 1s).error(), errc::invalid_argument);
}

TEST_F(release, R66_freed_memory_is_refused) {
  auto buffer = filled(7);
  const auto handle = buffer.handle();
  buffer = memfd_buffer();
  EXPECT_EQ(first.acquire_error(handle), errc::stale_handle);
}

TEST_F(release, R66_a_segment_is_imported_until_it_is_removed) {
  auto segments = exporter->reserve(2 * bytes).value();
  const auto handle = segments.grow(bytes).value();
  write_pattern(segments.data(), bytes, 7);
  EXPECT_TRUE(first.reads(handle, 7));
  ASSERT_TRUE(segments.remove(0, bytes));
  EXPECT_EQ(second.acquire_error(handle), errc::stale_handle);
}

// UCX #10346: the exporter frees memory that a peer still uses.
TEST_F(release, R66_an_exporter_that_frees_first_takes_nothing_from_a_lease) {
  auto buffer = filled(7);
  const auto handle = buffer.handle();
  ASSERT_TRUE(first.lease(handle));
  EXPECT_FALSE(exporter->retire(std::move(buffer), 0ms).value().all_let_go());
  EXPECT_TRUE(first.lease_holds(7));
  EXPECT_EQ(second.acquire_error(handle), errc::stale_handle);
  first.release();
}

// torchcomms #374 and #2591, MPICH #7947: other memory lies at the address of memory that a peer has cached.
TEST_F(release, R66_two_generations_at_one_address_are_told_apart) {
  auto buffer = filled(7);
  const auto old = buffer.handle();
  EXPECT_TRUE(first.reads(old, 7));
  auto* const address = buffer.data();
  ASSERT_TRUE(exporter->retire(std::move(buffer), ample).value().all_let_go());
  auto next = exporter->allocate(bytes, address).value();
  write_pattern(next.data(), bytes, 8);
  EXPECT_FALSE(first.finds(old));
  EXPECT_TRUE(first.reads(next.handle(), 8));
  EXPECT_EQ(first.acquire_error(old), errc::stale_handle);
  EXPECT_TRUE(first.reads(next.handle(), 8));
}

// MPICH #7977, DeepEP #497: a mapping is evicted while it is used, or its handle is opened again after a close.
TEST(release_of_small_caches, R66_a_handle_that_was_evicted_and_reopened_is_asked_for_once) {
  importer_peer small({.max_count = 1});
  auto exporter = memfd_exporter::create({.release = true}).value();
  auto one = exporter.allocate(bytes).value();
  auto other = exporter.allocate(bytes).value();
  write_pattern(one.data(), bytes, 1);
  write_pattern(other.data(), bytes, 2);
  ASSERT_TRUE(small.lease(one.handle()));
  EXPECT_EQ(small.acquire_error(other.handle()), errc::over_budget);  // a leased mapping is not evicted
  EXPECT_TRUE(small.lease_holds(1));
  small.release();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(small.reads(one.handle(), 1));
    EXPECT_TRUE(small.reads(other.handle(), 2));
  }
  EXPECT_EQ(exporter.retire(std::move(one), ample).value().let_go, 0U);  // evicted: told at its close
  EXPECT_EQ(exporter.retire(std::move(other), ample).value().let_go, 1U);
}

// The caller carries the messages, here from one hand to the other.
TEST(carried_release, R66_two_caches_of_one_process_let_go_together) {
  auto exporter = memfd_exporter::create().value();
  auto buffer = exporter.allocate(bytes).value();
  const auto handle = buffer.handle();
  release_registry registry(handle.exporter);
  ASSERT_TRUE(registry.add(handle.serial));
  constexpr std::uint64_t rank = 3;
  auto listener = release_listener::create([&](const release_message& answer) {
                    const auto read = read_release_message(std::as_bytes(std::span(&answer, 1)));
                    EXPECT_FALSE(registry.receive(rank, read.value()));
                  }).value();
  release_cache one(releasing_importer<memfd_importer>(memfd_importer(), listener));
  release_cache other(releasing_importer<memfd_importer>(memfd_importer(), listener));
  const auto first = listener.attach(one).value();
  const auto second = listener.attach(other).value();
  ASSERT_TRUE(registry.lend(handle.serial, rank));
  const peer_id peer{1};
  {
    const auto idle = one.acquire(peer, handle, handle.base, bytes).value();
  }
  auto leased = std::optional(other.acquire(peer, handle, handle.base, bytes).value());

  ASSERT_TRUE(registry.begin_retire(handle.serial, 1s));
  EXPECT_EQ(registry.lend(handle.serial, 4).error(), errc::stale_handle);
  const auto request = registry.next_request(rank);
  ASSERT_TRUE(request);
  EXPECT_FALSE(registry.next_request(rank));
  listener.receive(*request);
  EXPECT_EQ(registry.report(handle.serial).value().holders.at(0).state, release_state::leased);
  EXPECT_EQ(one.acquire(peer, handle, handle.base, bytes).error(), errc::stale_handle);
  EXPECT_FALSE(other.find(peer, handle, handle.base, bytes));
  EXPECT_EQ(listener.statistics().mappings, 1U);
  leased.reset();
  listener.progress();
  EXPECT_TRUE(registry.wait(handle.serial, 0ms).value().all_let_go());
  EXPECT_EQ(one.acquire(peer, handle, handle.base, bytes).error(), errc::stale_handle);  // also later
}

TEST(carried_release, R66_a_cache_attached_after_the_request_lets_go) {
  auto exporter = memfd_exporter::create().value();
  auto buffer = exporter.allocate(bytes).value();
  const auto handle = buffer.handle();
  release_registry registry(handle.exporter);
  ASSERT_TRUE(registry.add(handle.serial));
  ASSERT_TRUE(registry.lend(handle.serial, 3));
  auto listener = release_listener::create([&](const release_message& answer) {
                    EXPECT_FALSE(registry.receive(3, answer));
                  }).value();
  release_cache late(releasing_importer<memfd_importer>(memfd_importer(), listener));
  {
    const auto idle = late.acquire({1}, handle, handle.base, bytes).value();
  }
  ASSERT_TRUE(registry.begin_retire(handle.serial, 1s));
  listener.receive(*registry.next_request(3));
  EXPECT_EQ(registry.report(handle.serial).value().holders.size(), 1U);
  const auto attached = listener.attach(late).value();
  listener.progress();
  EXPECT_TRUE(registry.report(handle.serial).value().all_let_go());
  EXPECT_FALSE(late.find({1}, handle, handle.base, bytes));
}

TEST(carried_release, R66_a_listener_that_was_moved_from_is_a_copy) {
  auto from = release_listener::create().value();
  auto to = std::move(from);
  EXPECT_EQ(from.statistics().mappings, 0U);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(to.statistics().mappings, 0U);
}

TEST(carried_release, R66_a_cache_says_whether_it_could_open_a_handle) {
  auto exporter = memfd_exporter::create().value();
  auto buffer = exporter.allocate(bytes).value();
  auto listener = release_listener::create().value();
  const release_cache cache(releasing_importer<memfd_importer>(memfd_importer(), listener));
  EXPECT_TRUE(cache.can_open(buffer.handle()));
  EXPECT_EQ(cache.can_open({}).error(), errc::invalid_handle);
}

TEST(carried_release, R66_damaged_messages_are_refused) {
  release_message made{.exporter = 1, .serial = 2};
  made = sealed(made);
  const auto bytes_of = [](const release_message& one) { return std::as_bytes(std::span(&one, 1)); };
  EXPECT_EQ(read_release_message(bytes_of(made)).value(), made);
  EXPECT_EQ(read_release_message(bytes_of(made).first(55)).error(), errc::invalid_argument);
  for (std::size_t at = 0; at < sizeof made; ++at) {
    release_message damaged = made;
    reinterpret_cast<std::byte*>(&damaged)[at] ^= std::byte{0x10};
    EXPECT_EQ(read_release_message(bytes_of(damaged)).error(), errc::invalid_argument) << at;
  }
}

/// An importer whose closes the system refuses, until it is told otherwise.
class refusing_importer {
 public:
  static constexpr const char* name = memfd_importer::name;
  static constexpr bool allows_duplicates = memfd_importer::allows_duplicates;
  using handle_type = memfd_importer::handle_type;
  using registration_type = memfd_importer::registration_type;

  explicit refusing_importer(std::shared_ptr<std::atomic<bool>> refuses) : refuses_(std::move(refuses)) {}
  [[nodiscard]] result<range> check(const memfd_handle& handle) const noexcept { return below_.check(handle); }
  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const memfd_handle& handle) noexcept {
    return below_.open(peer, handle);
  }
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    if (*refuses_) return fail_errno(errc::driver_error, EIO, "the system refuses");
    return below_.close(mapping);
  }

 private:
  std::shared_ptr<std::atomic<bool>> refuses_;
  memfd_importer below_;
};

TEST_F(release, R66_closes_that_fail_are_not_tried_all_the_time) {
  const auto refuses = std::make_shared<std::atomic<bool>>(true);
  auto listener = release_listener::create().value();
  import_cache cache(releasing_importer(refusing_importer(refuses), listener));
  const auto attached = listener.attach(cache).value();
  auto buffer = filled(7);
  const auto handle = buffer.handle();
  ASSERT_TRUE(cache.acquire({1}, handle, handle.base, handle.size));
  const auto ticket = exporter->begin_retire(std::move(buffer), 10s).value();
  const auto began = std::chrono::steady_clock::now();
  const auto tries = [&] { return listener.statistics().failed_closes; };
  while (tries() == 0 && std::chrono::steady_clock::now() - began < ample) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(ticket.wait(400ms).value().all_let_go());
  const auto failed = tries();
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GT(failed, 0U);
  EXPECT_LT(failed, 10U + 2U * static_cast<std::uint64_t>(took / 1s)) << "once a second, not every 10 ms";
  *refuses = false;
  EXPECT_TRUE(ticket.wait(ample).value().all_let_go());
}

}  // namespace pinfold::testing::release_test
