// SPDX-License-Identifier: BSD-3-Clause
// An exporter's event orders the importer's reads behind the exporter's writes.
#include "support/fixtures/cuda_test.hpp"

namespace pinfold::testing::cuda_events_test {
namespace {

class cuda_events : public cuda_test {
 protected:
  /// Copies the mapped memory in stream order, and checks the copy's pattern.
  static bool stream_reads(const void* mapped, std::size_t bytes, std::uint32_t seed) {
    const auto& cu = gpu().calls();
    cuda::device_pointer copy = 0;
    gpu().demand([&] { return cu.mem_alloc(&copy, bytes); });
    gpu().demand([&] { return cu.memcpy_async(copy, reinterpret_cast<std::uintptr_t>(mapped), bytes, nullptr); });
    gpu().demand([&] { return cu.stream_synchronize(nullptr); });
    const bool right = gpu().holds(copy, bytes, seed);
    gpu().demand([&] { return cu.mem_free(copy); });
    return right;
  }
};

TEST_F(cuda_events, a_waiting_reader_gets_the_bytes_of_a_delayed_write) {
  cuda_peer peer(true);
  cuda_ipc_importer importer;
  const auto memory = peer.allocate(64 * kib, 1);
  EXPECT_NE(memory.event, cuda_ipc_event{});
  const auto made = importer.open(any_peer, memory.handle);
  ASSERT_TRUE(made) << describe(made.error());
  for (std::uint32_t seed = 2; seed < 6; ++seed) {
    peer.write_later(memory.address, 64 * kib, seed);
    ASSERT_TRUE(importer.wait(memory));
    EXPECT_TRUE(stream_reads(made->data, 64 * kib, seed));
  }
  EXPECT_TRUE(importer.close(made->registration));
}

TEST_F(cuda_events, reader_without_the_wait_gets_the_old_bytes) {
  PINFOLD_EMULATION_ONLY();
  cuda_peer peer(true);
  cuda_ipc_importer importer;
  const auto memory = peer.allocate(64 * kib, 1);
  const auto made = importer.open(any_peer, memory.handle);
  ASSERT_TRUE(made) << describe(made.error());
  bool read_old_bytes = false;
  for (std::uint32_t seed = 2; seed < 100 && !read_old_bytes; ++seed) {  // a busy machine may read after the write
    peer.write_later(memory.address, 64 * kib, seed);
    read_old_bytes = !stream_reads(made->data, 64 * kib, seed);
    ASSERT_TRUE(importer.wait(memory));
    EXPECT_TRUE(stream_reads(made->data, 64 * kib, seed));
  }
  EXPECT_TRUE(read_old_bytes) << "then the test above shows nothing";
  EXPECT_TRUE(importer.close(made->registration));
}

TEST_F(cuda_events, exporter_without_events_needs_no_wait_and_cannot_record) {
  cuda_peer peer;
  cuda_ipc_importer importer;
  const auto memory = peer.allocate(32 * kib, 1);
  EXPECT_EQ(memory.event, cuda_ipc_event{});
  EXPECT_TRUE(importer.wait(memory));
  auto exporter = cuda_ipc_exporter::create();
  ASSERT_TRUE(exporter);
  EXPECT_EQ(exporter->record(memory).error(), errc::unsupported);
}

TEST_F(cuda_events, an_event_is_opened_once_and_destroyed_with_the_importer) {
  PINFOLD_EMULATION_ONLY();
  cuda_peer peer(true);
  const auto memory = peer.allocate(32 * kib, 1);
  {
    cuda_ipc_importer importer;
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(importer.wait(memory));
    EXPECT_EQ(emulation().calls("cuIpcOpenEventHandle"), 1U);
    EXPECT_EQ(emulation().calls("cuStreamWaitEvent"), 5U);
  }
  EXPECT_EQ(emulation().calls("cuEventDestroy"), 1U);
}

TEST_F(cuda_events, events_that_were_not_waited_for_lately_are_destroyed) {
  PINFOLD_EMULATION_ONLY();
  constexpr unsigned kept = 64, others = 100;
  cuda_peer peer(true), idle(true);
  cuda_ipc_importer importer;
  const auto memory = peer.allocate(64 * kib, 1);
  const auto made = importer.open(any_peer, memory.handle);
  ASSERT_TRUE(made) << describe(made.error());
  auto other = idle.allocate(32 * kib, 1);
  const auto wait_for_another = [&] {
    ++other.event.bytes.back();  // which the emulation ignores
    return importer.wait(other).has_value();
  };
  for (unsigned i = 0; i < others; ++i) EXPECT_TRUE(wait_for_another() && importer.wait(memory));
  EXPECT_EQ(emulation().calls("cuIpcOpenEventHandle"), others + 1) << "one that is in use was opened again";
  EXPECT_EQ(emulation().calls("cuEventDestroy"), others + 1 - kept);
  peer.write_later(memory.address, 64 * kib, 2);
  ASSERT_TRUE(importer.wait(memory));
  for (unsigned i = 0; i < others; ++i) EXPECT_TRUE(wait_for_another());
  EXPECT_TRUE(stream_reads(made->data, 64 * kib, 2)) << "the wait ended with its event";
  EXPECT_TRUE(importer.close(made->registration));
}

TEST_F(cuda_events, event_of_an_ended_process_delays_nothing) {
  cuda_ipc_importer importer;
  cuda_shared memory;
  {
    cuda_peer peer(true);
    memory = peer.allocate(32 * kib, 1);
  }
  EXPECT_TRUE(importer.wait(memory));
  gpu().demand([] { return gpu().calls().stream_synchronize(nullptr); });
  memory.event.bytes[0] ^= 1U;
  for (const char* const again : {"", "nothing is kept of one that could not be opened"})
    EXPECT_FALSE(importer.wait(memory)) << again;
}

TEST_F(cuda_events, wait_succeeds_after_a_failed_wait) {
  PINFOLD_EMULATION_ONLY();
  cuda_peer peer(true);
  const auto memory = peer.allocate(32 * kib, 1);
  for (const char* const call : {"cuIpcOpenEventHandle", "cuStreamWaitEvent", "cuCtxPushCurrent"}) {
    cuda_ipc_importer importer;
    emulation().fail(call, 1, static_cast<int>(cuda::status::unknown), false);
    EXPECT_FALSE(importer.wait(memory)) << call;
    EXPECT_TRUE(importer.wait(memory)) << call;
  }
}

}  // namespace
}  // namespace pinfold::testing::cuda_events_test
