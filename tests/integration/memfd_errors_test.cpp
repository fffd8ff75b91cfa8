// SPDX-License-Identifier: BSD-3-Clause
// Every error of the memfd importer, provoked for real.
#include "support/answer_times.hpp"
#include "support/fixtures/memfd_test.hpp"

#include <chrono>
#include <fcntl.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace pinfold::testing::memfd_errors_test {
namespace {

class memfd_errors : public memfd_pair {};

TEST_P(memfd_errors, killed_exporter_is_peer_gone_before_and_after_it_is_reaped) {
  const auto handle = peer.allocate(4 * kib, 1);
  expect_round_trip(reader, handle, 1);
  peer.process().kill();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reader.open(any_peer, handle).error(), errc::peer_gone);
  peer.process().reap();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reader.open(any_peer, handle).error(), errc::peer_gone);
  EXPECT_EQ(importer().open(any_peer, handle).error(), errc::peer_gone) << "an importer that never met it";
}

TEST_P(memfd_errors, mappings_outlive_a_killed_exporter) {
  const auto handle = peer.allocate(64 * kib, 1);
  const auto made = reader.open(any_peer, handle);
  ASSERT_TRUE(made);
  peer.process().kill();
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 1));
  EXPECT_TRUE(reader.close(made->registration));
}

TEST_P(memfd_errors, R4_a_freed_buffer_is_stale) {
  const auto handle = peer.allocate(4 * kib, 1);
  peer.free(handle);
  expect_refused(reader, handle, errc::stale_handle, GetParam() == memfd_via::scm ? 0 : EBADF);
}

TEST_P(memfd_errors, R4_a_freed_buffer_whose_descriptor_is_another_memfd_is_stale) {
  const auto handle = peer.allocate(4 * kib, 1);
  peer.free_and_reuse_number(handle);
  expect_refused(reader, handle, errc::stale_handle);
}

TEST_P(memfd_errors, handle_with_any_flipped_bit_is_refused) {
  const auto handle = peer.allocate(4 * kib, 1);
  const int before = open_descriptors();
  for (std::size_t bit = 0; bit < 8 * sizeof handle; ++bit) {
    auto damaged = handle;
    reinterpret_cast<unsigned char*>(&damaged)[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    expect_refused(reader, damaged, errc::invalid_handle);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(memfd_errors, a_size_beyond_the_file_is_refused) {
  auto handle = peer.allocate(4 * kib, 1);
  handle.size *= 2;
  expect_refused(reader, memfd::completed(handle), errc::invalid_range);
}

TEST_P(memfd_errors, read_only_buffer_is_refused_for_writing) {
  auto writer = importer(memfd_access::read_write);
  auto handle = peer.allocate(4 * kib, 1);
  expect_refused(writer, handle, errc::not_permitted);
  handle.access = static_cast<std::uint16_t>(memfd_access::read_write);  // a lie, which the file's seals uncover
  expect_refused(writer, memfd::completed(handle), errc::not_permitted, EPERM);
}

TEST_P(memfd_errors, R7_lack_of_descriptors_is_out_of_resources_and_leaks_nothing) {
  const auto handle = peer.allocate(4 * kib, 1);
  expect_round_trip(reader, handle, 1);
  const auto kept = reader.open(any_peer, handle);
  const auto other = peer.allocate(4 * kib, 2);
  const int before = open_descriptors();
  for (const bool use_them_up : {true, false}) {
    const lowered_limit none(RLIMIT_NOFILE, use_them_up ? lowest_free_descriptor() : 0);
    for (int i = 0; i < 3; ++i) {
      const auto made = reader.open(any_peer, other);
      ASSERT_FALSE(made);
      EXPECT_EQ(made.error(), errc::out_of_resources) << describe(made.error());
    }
  }
  EXPECT_LE(open_descriptors(), before);
  expect_round_trip(reader, other, 2);
  EXPECT_TRUE(holds_pattern(kept->data, kept->bytes, 1));
  EXPECT_LE(open_descriptors(), before);
}

TEST_P(memfd_errors, cached_descriptors_are_closed_when_descriptors_run_out) {
  exporter_peer one(serving());
  exporter_peer two(serving());
  exporter_peer three(serving());
  for (exporter_peer* each : {&one, &two, &three}) expect_round_trip(reader, each->allocate(4 * kib, 1), 1);
  const auto handle = one.allocate(4 * kib, 2);
  const lowered_limit none_free(RLIMIT_NOFILE, lowest_free_descriptor());
  const auto made = reader.open(any_peer, handle);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 2));
}

TEST_P(memfd_errors, R7_lack_of_address_space_is_out_of_resources_until_it_ends) {
  if (sanitized) GTEST_SKIP() << "the sanitizer needs the address space for itself";
  const auto handle = peer.allocate(64 * 1024 * kib, 1);
  {
    const lowered_limit small(RLIMIT_AS, address_space_used() + 16 * 1024 * kib);
    expect_refused(reader, handle, errc::out_of_resources, ENOMEM);
  }
  const auto made = reader.open(any_peer, handle);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_TRUE(holds_pattern(made->data, 4 * kib, 1));
}

INSTANTIATE_TEST_SUITE_P(memfd, memfd_errors, ::testing::Values(memfd_via::pidfd, memfd_via::scm), each_via::name);

TEST(memfd_errors_pidfd, process_with_the_same_pid_and_another_start_time_is_peer_gone) {
  exporter_peer peer;
  auto handle = peer.allocate(4 * kib, 1);
  memfd_importer reader({.via = memfd_via::pidfd});
  expect_round_trip(reader, handle, 1);
  handle.start_time -= 1;
  expect_refused(reader, memfd::completed(handle), errc::peer_gone);
}

TEST(memfd_errors_pidfd, descriptor_that_is_no_longer_a_memfd_is_stale) {
  const os::file file = sealed_file(4 * kib, all_seals);
  const auto handle = handle_of(file, 4 * kib);
  memfd_importer reader({.via = memfd_via::pidfd});
  ASSERT_TRUE(reader.open(any_peer, handle));
  auto other = handle;
  other.base += 1024 * kib;
  other.descriptor = 0;
  expect_refused(reader, memfd::completed(other), errc::stale_handle);
}

TEST(memfd_errors_pidfd, a_stale_handle_costs_this_process_no_lock_of_its_own) {
  const os::file file = sealed_file(4 * kib, all_seals);
  const os::file database(::open(::testing::TempDir().c_str(), O_TMPFILE | O_RDWR, 0600));
  ASSERT_TRUE(database);
  struct flock lock{};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(database.number(), F_SETLK, &lock), 0);
  auto stale = handle_of(file, 4 * kib);
  stale.descriptor = database.number();
  memfd_importer reader({.via = memfd_via::pidfd});
  expect_refused(reader, memfd::completed(stale), errc::stale_handle);
  child_process other([&](line&) {
    struct flock seen{};
    seen.l_type = F_WRLCK;
    return ::fcntl(database.number(), F_GETLK, &seen) == 0 && seen.l_type == F_WRLCK ? 0 : 1;
  });
  EXPECT_EQ(other.finish(), 0) << "the lock is gone";
}

TEST(memfd_errors_seals, error_names_each_missing_seal) {
  memfd_importer reader({.via = memfd_via::pidfd});
  const std::pair<int, std::string> seals[] = {
      {F_SEAL_SHRINK, "SHRINK"}, {F_SEAL_GROW, "GROW"}, {F_SEAL_FUTURE_WRITE, "FUTURE_WRITE"}};
  for (const auto& [seal, seal_name] : seals) {
    const os::file file = sealed_file(4 * kib, all_seals & ~seal);
    const auto made = reader.open(any_peer, handle_of(file, 4 * kib));
    ASSERT_FALSE(made) << seal_name;
    EXPECT_EQ(made.error(), errc::not_permitted);
    EXPECT_NE(std::string(made.error().message).find(seal_name), std::string::npos) << made.error().message;
  }
}

TEST(memfd_errors_seals, reader_refuses_writable_memory_unless_require_seals_is_off) {
  exporter_peer peer({.access = memfd_access::read_write});
  const auto handle = peer.allocate(4 * kib, 1);
  memfd_importer careful({.via = memfd_via::pidfd});
  expect_refused(careful, handle, errc::not_permitted);
  memfd_importer trusting({.via = memfd_via::pidfd, .require_seals = false});
  expect_round_trip(trusting, handle, 1);
}

TEST(memfd_errors_seals, seal_against_all_writes_suffices_and_none_without_require_seals) {
  const os::file finished = sealed_file(4 * kib, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  memfd_importer careful({.via = memfd_via::pidfd});
  EXPECT_TRUE(careful.open(any_peer, handle_of(finished, 4 * kib)));
  const os::file open_file = sealed_file(4 * kib, 0);
  memfd_importer trusting({.via = memfd_via::pidfd, .require_seals = false});
  EXPECT_TRUE(trusting.open(any_peer, handle_of(open_file, 4 * kib)));
}

TEST(memfd_errors_scm, exporter_that_does_not_serve_is_unsupported_and_an_ended_one_is_gone) {
  exporter_peer peer;
  const auto handle = peer.allocate(4 * kib, 1);
  memfd_importer reader({.via = memfd_via::scm});
  expect_refused(reader, handle, errc::unsupported, ECONNREFUSED);
  peer.process().kill();
  expect_refused(reader, handle, errc::peer_gone, ECONNREFUSED);
}

TEST(memfd_errors_scm, stopped_exporter_times_out_and_works_when_continued) {
  exporter_peer peer({.serve = true});
  const auto handle = peer.allocate(4 * kib, 1);
  memfd_importer reader({.via = memfd_via::scm});
  expect_round_trip(reader, handle, 1);
  peer.process().stop();
  {
    const usual_answer_times usual;
    expect_refused(reader, handle, errc::timed_out, ETIMEDOUT);
  }
  peer.process().go_on();
  const auto answers = [&] {
    const auto made = reader.open(any_peer, handle);
    return made && reader.close(made->registration).has_value();
  };
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);  // it may take a while to answer the earlier request
  while (!answers() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  expect_round_trip(reader, handle, 1);
}

}  // namespace
}  // namespace pinfold::testing::memfd_errors_test
