// SPDX-License-Identifier: BSD-3-Clause
// Random histories of one cache of GPU memory from two other processes, compared step by step with the oracle of
// import_cache_model_test.cpp: R3-R7, R9-R17, R40-R43, R47, R48. The driver is the emulation.
#include "model/agreement.hpp"
#include "model/import_model.hpp"
#include "support/fixtures/cuda_test.hpp"

#include <array>
#include <functional>
#include <map>
#include <memory>

namespace pinfold::testing::cuda_import_model_test {
namespace {

using cuda::status;

/// The cache is told of no end: the thread that does would come at any step of a history.
struct deaf_importer : cuda_ipc_importer {
  using cuda_ipc_importer::cuda_ipc_importer;
  void tell_ends(std::function<void(peer_id, range, const cuda_ipc_handle&)>) = delete;
};
static_assert(importer<deaf_importer> && !end_telling_importer<deaf_importer>);

/// Two peers with memory, and the driver. Outlives a history: starting the processes takes longer than a history.
class gpu_world {
 public:
  static constexpr int most_failures = 1;
  static constexpr errc lasting_failure = errc::not_permitted;

  explicit gpu_world(emulated_cuda::second_open rule) : rule_(rule) {}

  static deaf_importer importer() { return deaf_importer(); }
  void start(import_oracle& oracle, std::size_t capacity) {
    free_all();
    emulation().reset();
    emulation().set_second_open(rule_);
    emulation().set_freed(static_cast<int>(status::invalid_handle));
    emulation().max_mappings(capacity);
    oracle.counts_opens = oracle.confirms_opens = oracle.mapped_before_stale = true;
  }
  /// Gives a place fresh memory, and removes from the list what was there.
  fake_handle allocate(std::uint32_t where, std::uint32_t size, std::list<fake_handle>& exported) {
    auto& peer = peers_[where % 2];
    if (!peer.process) peer = {std::make_unique<cuda_peer>(), ++last_peer_, {}};
    auto& here = peer.owned[where / 2 % places];
    if (here != 0) {
      peer.process->free(shared_.at(here).address);
      exported.remove_if([&](auto& old) { return old.serial == here; });
    }
    here = ++last_serial_;
    const auto made = peer.process->allocate(std::size_t{4096} * (1 + size % 4), static_cast<std::uint32_t>(here));
    shared_.emplace(here, made);
    return {peer.number, here, made.handle.base, made.handle.size};
  }
  /// Ends the peer's process and returns the number it had.
  std::uint64_t kill(std::uint32_t which) {
    peers_[which].process.reset();
    return peers_[which].number;
  }
  [[nodiscard]] const cuda_ipc_handle& handle(const fake_handle& of) const { return shared_.at(of.serial).handle; }
  static region gone(const step& s, const fake_handle& near) {
    return {near.exporter, {near.base + s.b % 8192, near.base + s.b % 8192 + 1 + s.b}};
  }
  static void fail_opens(int count, errc failure) {
    const auto code = failure == errc::out_of_resources ? status::out_of_memory : status::not_permitted;
    fail("cuIpcOpenMemHandle", count == 0 ? status::success : code);
  }
  static void fail_closes(int count) {
    fail("cuIpcCloseMemHandle", count == 0 ? status::success : status::launch_failed);
  }
  static bool shows(const fake_handle& of, std::size_t offset, const void* data) {
    return *static_cast<const std::byte*>(data) == pattern_byte(static_cast<std::uint32_t>(of.serial), offset);
  }
  template <class Cache>
  static void check(Cache& cache) {
    const auto open = cache.statistics().open;
    const auto driver = gpu().counters();
    RC_ASSERT(open == cache.backend().held());
    RC_ASSERT(driver.live_mappings <= open);
    RC_ASSERT(driver.opens == driver.mapped);
    RC_ASSERT(driver.double_closes + driver.wrong_closes == 0U);
  }
  static std::size_t open_count() { return gpu().counters().live_mappings; }

 private:
  static constexpr std::size_t places = 12;  ///< of each peer
  struct peer_state {
    std::unique_ptr<cuda_peer> process;
    std::uint64_t number = 0;                   ///< of this process
    std::array<std::uint64_t, places> owned{};  ///< serials; 0: nothing
  };

  static void fail(const char* call, status code) { emulation().fail(call, 1, static_cast<int>(code), false); }
  void free_all() {
    for (auto& peer : peers_)
      for (auto& one : peer.owned)
        if (one != 0 && peer.process) peer.process->free(shared_.at(std::exchange(one, 0)).address);
    shared_.clear();
  }

  emulated_cuda::second_open rule_;
  std::array<peer_state, 2> peers_;
  std::uint64_t last_peer_ = 0;
  std::map<std::uint64_t, cuda_shared> shared_;
  std::uint64_t last_serial_ = 0;
};

void agree(emulated_cuda::second_open rule) {
  if (real_gpu()) GTEST_SKIP() << "the oracle knows the emulated driver";
  gpu_world world(rule);
  expect_agreement<import_model>(model_steps() / 10, [&]() -> gpu_world& { return world; });
}

// Drivers that tell freed memory and exclude overlaps, so that the oracle knows each of their answers.
TEST(cuda_import_model, agrees_with_the_oracle_where_the_driver_counts_opens) {
  agree(emulated_cuda::second_open::exclusive);
}
TEST(cuda_import_model, agrees_with_the_oracle_where_the_driver_refuses_a_second_open) {
  agree(emulated_cuda::second_open::refused);
}

}  // namespace
}  // namespace pinfold::testing::cuda_import_model_test
