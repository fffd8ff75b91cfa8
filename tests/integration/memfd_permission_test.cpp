// SPDX-License-Identifier: BSD-3-Clause
// Which users may open a handle, and which access an open gives.
#include "support/fixtures/memfd_test.hpp"
#include "support/host/privileges.hpp"

#include <csignal>
#include <sys/mman.h>

namespace pinfold::testing::memfd_permission_test {
namespace {

TEST(memfd_permission, socket_works_when_ptrace_is_forbidden) {
  exporter_peer peer({.serve = true});
  const auto handle = peer.allocate(4 * kib, 1);
  peer.forbid_ptrace();
  const without_ptrace_privilege guard;

  memfd_importer direct({.via = memfd_via::pidfd});
  expect_refused(direct, handle, errc::not_permitted, EPERM);
  memfd_importer served({.via = memfd_via::scm});
  expect_round_trip(served, handle, 1);
  memfd_importer automatic({.via = memfd_via::automatic});
  expect_round_trip(automatic, handle, 1);
}

TEST(memfd_permission, automatic_reports_forbidden_ptrace_when_no_server_runs) {
  exporter_peer peer;
  const auto handle = peer.allocate(4 * kib, 1);
  peer.forbid_ptrace();
  const without_ptrace_privilege guard;
  memfd_importer automatic({.via = memfd_via::automatic});
  expect_refused(automatic, handle, errc::not_permitted, EPERM);
}

/// The results of an importer that runs without privileges, while the exporter is root.
struct seen_by_nobody {
  bool became;
  error direct;
  error served;
  error automatic;
};

TEST(memfd_permission, another_user_is_refused_over_every_transport) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can run the importer as another user";
  exporter_peer peer({.serve = true});
  const auto handle = peer.allocate(4 * kib, 1);
  child_process other([&](line& parent) {
    seen_by_nobody seen{become_nobody(), {}, {}, {}};
    const auto failure_by = [&](memfd_via via) {
      memfd_importer importer({.via = via});
      const auto made = importer.open(any_peer, handle);
      return made ? error{errc::driver_error, native_kind::none, 0, "it was opened"} : made.error();
    };
    seen.direct = failure_by(memfd_via::pidfd);
    seen.served = failure_by(memfd_via::scm);
    seen.automatic = failure_by(memfd_via::automatic);
    return parent.send(seen) ? 0 : 1;
  });
  const auto seen = other.talk().receive<seen_by_nobody>();
  ASSERT_TRUE(seen && seen->became);
  for (const error& one : {seen->direct, seen->served, seen->automatic}) {
    EXPECT_EQ(one, errc::not_permitted) << describe(one);
    EXPECT_EQ(one.native, EPERM);
  }
  memfd_importer own({.via = memfd_via::scm});
  expect_round_trip(own, handle, 1);
}

TEST(memfd_permission, root_can_open_memory_that_another_user_serves) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make an exporter of another user";
  child_process other([](line& parent) {
    if (!become_nobody()) return 1;
    ::prctl(PR_SET_DUMPABLE, 1);  // reset by the change of user; needed to read this process's own /proc entries
    auto exporter = memfd_exporter::create({.serve = true});
    if (!exporter) return 2;
    const auto buffer = exporter->allocate(4 * kib);
    if (!buffer) return 3;
    write_pattern(buffer->data(), buffer->size(), 1);
    return parent.send(buffer->handle()) && !parent.receive<int>() ? 0 : 4;
  });
  const auto handle = other.talk().receive<memfd_handle>();
  ASSERT_TRUE(handle);
  for (const memfd_via via : {memfd_via::pidfd, memfd_via::scm}) {
    memfd_importer importer({.via = via});
    expect_round_trip(importer, *handle, 1);
  }
  EXPECT_EQ(other.finish(), 0);
}

TEST(memfd_permission, a_read_only_mapping_cannot_be_made_writable_and_faults_on_a_write) {
  exporter_peer peer;
  memfd_importer reader({.via = memfd_via::pidfd});
  const auto made = reader.open(any_peer, peer.allocate(4 * kib, 1));
  ASSERT_TRUE(made);
  EXPECT_EQ(::mprotect(made->data, made->bytes, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
  child_process writer([&](line&) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would turn it into an exit status
    *static_cast<volatile char*>(made->data) = 1;
    return 0;
  });
  EXPECT_EQ(writer.finish(), -SIGSEGV);
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 1));
}

TEST(memfd_permission, peer_cannot_truncate_sealed_memory) {
  auto exporter = memfd_exporter::create().value();
  const auto buffer = exporter.allocate(64 * kib).value();
  write_pattern(buffer.data(), buffer.size(), 1);
  memfd_importer reader({.via = memfd_via::pidfd});
  const auto made = reader.open(any_peer, buffer.handle());
  ASSERT_TRUE(made);
  EXPECT_EQ(::ftruncate(buffer.descriptor(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::madvise(buffer.data(), buffer.size(), MADV_REMOVE), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 1));
}

TEST(memfd_permission, read_write_importers_can_see_punched_zeros_but_no_fault) {
  auto exporter = memfd_exporter::create({.access = memfd_access::read_write}).value();
  const auto buffer = exporter.allocate(64 * kib).value();
  write_pattern(buffer.data(), buffer.size(), 1);
  memfd_importer reader({.via = memfd_via::pidfd, .access = memfd_access::read_write});
  const auto made = reader.open(any_peer, buffer.handle());
  ASSERT_TRUE(made);
  ASSERT_EQ(::madvise(buffer.data(), buffer.size(), MADV_REMOVE), 0);
  const auto* bytes = static_cast<const std::byte*>(made->data);
  for (std::size_t i = 0; i < made->bytes; i += 512) ASSERT_EQ(bytes[i], std::byte{0});
}

}  // namespace
}  // namespace pinfold::testing::memfd_permission_test
