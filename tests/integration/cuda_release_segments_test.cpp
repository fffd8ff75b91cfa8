// SPDX-License-Identifier: BSD-3-Clause
// Memory of several segments is not retired while importers may hold a part of it by another handle (R66). Exporter and
// importer are children.
#include "support/fixtures/cuda_segments_here.hpp"
#include "support/fixtures/cuda_test.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <chrono>
#include <thread>

namespace pinfold::testing::cuda_release_segments_test {
namespace {

using namespace std::chrono_literals;

/// Two segments, side by side, that an exporter shares as one range.
class two_segments {
 public:
  two_segments() {
    gpu().demand([&] { return gpu().calls().mem_address_reserve(&base_, 2 * segment, 0, 0, 0); });
    map(0);
    map(1);
    range = exporter.share(std::uint64_t{base_}, 2 * segment).value();
  }
  [[nodiscard]] std::uint64_t at(int which) const { return base_ + static_cast<unsigned>(which) * segment; }
  void map(int which) const {
    gpu().demand([&] { return map_segment(at(which), segment); });
  }
  void unmap(int which) const {
    gpu().demand([&] { return gpu().calls().mem_unmap(at(which), segment); });
  }
  /// Returns whether the first segment is freed by agreement, or the error.
  [[nodiscard]] result<bool> retire_first() {
    const auto first = reinterpret_cast<const void*>(at(0));
    const auto done = exporter.retire(first, 60s, [&]() -> result<void> { return unmap(0), result<void>(); });
    if (!done) return tl::unexpected(done.error());
    return done->all_let_go();
  }

  cuda_ipc_exporter exporter = cuda_ipc_exporter::create({.release = true}).value();
  cuda_ipc_exporter another = cuda_ipc_exporter::create({.release = true}).value();
  cuda_shared range;

 private:
  cuda::device_pointer base_ = 0;
};

TEST(cuda_release_segments, R66_a_range_is_not_retired_while_a_part_of_it_is_shared_alone) {
  child_process exporter([](line&) {
    for (const bool other : {false, true}) {
      two_segments memory;
      auto& also = other ? memory.another : memory.exporter;
      if (!also.share(memory.at(1), segment)) return 1;
      const auto refused = memory.retire_first();
      if (refused || refused.error() != errc::unsupported) return 2;
      memory.unmap(1);
      const auto freed = memory.retire_first();
      if (!freed || !*freed) return 3;
    }
    return 0;
  });
  EXPECT_EQ(exporter.finish(), 0);
}

/// Leases the range until it is told to let it go.
int import_range(line& talk) {
  const auto range = talk.receive<cuda_shared>().value();
  auto listener = release_listener::create().value();
  import_cache cache(releasing_importer<cuda_ipc_importer>(cuda_ipc_importer(), listener));
  const auto attached = listener.attach(cache).value();
  auto lease = cache.acquire(any_peer, range.handle, range.handle.base, range.handle.size);
  if (!lease) return 1;
  if (!talk.send(true) || !talk.receive<bool>()) return 2;
  if (!lease->release() || !cache.flush()) return 3;
  return talk.send(true) && talk.receive<bool>() ? 0 : 4;
}

/// The importer leases the range, of which the second segment goes; then the first is shared alone, and retired.
void is_not_retired_under_a_lease(bool announced) {
  child_process importer(import_range);
  child_process exporter([announced](line& talk) {
    two_segments memory;
    if (!talk.send(memory.range) || !talk.receive<bool>()) return 1;
    if (announced && cuda_ipc_exporter::announce_free(memory.at(1), segment, 60s).value_or(0) != 1) return 2;
    memory.unmap(1);
    memory.map(1);
    if (!announced && !memory.exporter.share(memory.at(1), segment)) return 3;
    if (!memory.exporter.share(memory.at(0), segment)) return 4;
    const auto refused = memory.retire_first();
    if (refused || refused.error() != errc::unsupported) return 5;
    if (!talk.send(true) || !talk.receive<bool>()) return 6;
    for (int i = 0; i < 6000; ++i, std::this_thread::sleep_for(10ms))
      if (const auto freed = memory.retire_first()) return *freed ? 0 : 7;
    return 8;
  });
  const auto range = exporter.talk().receive<cuda_shared>();
  ASSERT_TRUE(range);
  importer.talk().send(*range);
  ASSERT_TRUE(importer.talk().receive<bool>());
  exporter.talk().send(true);
  ASSERT_TRUE(exporter.talk().receive<bool>()) << exporter.reap();
  importer.talk().send(true);
  ASSERT_TRUE(importer.talk().receive<bool>());
  exporter.talk().send(true);
  EXPECT_EQ(exporter.reap(), 0);
  importer.talk().send(true);
  EXPECT_EQ(importer.reap(), 0);
}

TEST(cuda_release_segments, R66_a_segment_is_not_retired_under_a_lease_on_an_announced_range) {
  is_not_retired_under_a_lease(true);
}
TEST(cuda_release_segments, R66_a_segment_is_not_retired_under_a_lease_on_a_range_that_was_replaced_in_part) {
  is_not_retired_under_a_lease(false);
}

}  // namespace
}  // namespace pinfold::testing::cuda_release_segments_test
