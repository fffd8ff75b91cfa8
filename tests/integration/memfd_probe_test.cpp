// SPDX-License-Identifier: BSD-3-Clause
#include "support/fixtures/memfd_test.hpp"
#include "support/host/privileges.hpp"

#include <thread>

namespace pinfold::testing::memfd_probe_test {
namespace {

class memfd_probe : public each_via {};

TEST_P(memfd_probe, probe_agrees_with_an_import) {
  exporter_peer peer({.serve = GetParam() != memfd_via::pidfd});
  auto reader = importer();
  const auto made = reader.open(any_peer, peer.allocate(4 * kib, 1));
  const auto probed = probe_memfd(GetParam());
  EXPECT_EQ(probed.has_value(), made.has_value()) << (probed ? "" : describe(probed.error()));
}

TEST_P(memfd_probe, probe_leaks_nothing_in_a_process_with_threads) {
  const int before = open_descriptors();
  const int mappings = memfd_mappings();
  std::atomic<bool> done{false};
  {
    const std::jthread busy([&] {
      while (!done) std::string(1000, 'x').clear();  // the allocator's lock is often held when the probe forks
    });
    for (int i = 0; i < 20; ++i) static_cast<void>(probe_memfd(GetParam()));
    done = true;
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(memfd_mappings(), mappings);
}

INSTANTIATE_TEST_SUITE_P(memfd, memfd_probe, ::testing::Values(memfd_via::pidfd, memfd_via::scm, memfd_via::automatic),
                         each_via::name);

TEST(memfd_probe_failure, failed_probe_returns_the_reason) {
  // Without privileges and not dumpable: the probe's child cannot fetch from this process.
  child_process confined([](line& parent) {
    const without_ptrace_privilege guard;
    ::prctl(PR_SET_DUMPABLE, 0);
    const auto direct = probe_memfd(memfd_via::pidfd);
    const auto any = probe_memfd(memfd_via::automatic);
    parent.send(direct ? error{errc::driver_error, native_kind::none, 0, "it works"} : direct.error());
    return any ? 0 : 1;
  });
  const auto why = confined.talk().receive<error>();
  ASSERT_TRUE(why);
  EXPECT_EQ(*why, errc::not_permitted) << describe(*why);
  EXPECT_EQ(why->native, EPERM);
  EXPECT_EQ(confined.finish(), 0) << "the socket should have worked";
}

}  // namespace
}  // namespace pinfold::testing::memfd_probe_test
