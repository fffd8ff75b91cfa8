// SPDX-License-Identifier: BSD-3-Clause
// Random histories of one cache of GPU memory from two other processes, compared step by step with the oracle of
// import_cache_model_test.cpp: R3-R7, R9-R17, R40-R43, R47, R48. The driver is the emulation.
#include "model/history.hpp"
#include "model/oracle.hpp"
#include "support/fixtures/cuda_test.hpp"

#include <array>
#include <map>
#include <memory>
#include <thread>

namespace pinfold::testing {
namespace {

using cuda::status;

std::uint64_t steps_done = 0;

/// The peers' memory, by the oracle's numbers. Outlives a history: starting the processes takes longer than a history.
class gpu_world {
 public:
  static constexpr std::size_t places = 12;  ///< of each peer

  /// Gives a place fresh memory; `gone` gets the serial of the memory that was there.
  template <class Gone>
  fake_handle allocate(std::size_t which, std::size_t place, std::size_t bytes, Gone&& gone) {
    auto& peer = peers_[which];
    if (!peer.process) peer = {std::make_unique<cuda_peer>(), ++last_peer_, {}};
    auto& here = peer.owned[place];
    if (here != 0) {
      peer.process->free(shared_.at(here).address);
      gone(here);
    }
    here = ++last_serial_;
    const auto made = peer.process->allocate(bytes, static_cast<std::uint32_t>(here));
    shared_.emplace(here, made);
    return {peer.number, here, made.handle.base, made.handle.size};
  }
  /// Ends the peer's process and returns the number it had.
  std::uint64_t kill(std::size_t which) {
    peers_[which].process.reset();
    return peers_[which].number;
  }
  void free_all() {
    for (auto& peer : peers_)
      for (auto& one : peer.owned)
        if (one != 0 && peer.process) peer.process->free(shared_.at(std::exchange(one, 0)).address);
    shared_.clear();
  }
  [[nodiscard]] const cuda_ipc_handle& handle(const fake_handle& of) const { return shared_.at(of.serial).handle; }

 private:
  struct peer_state {
    std::unique_ptr<cuda_peer> process;
    std::uint64_t number = 0;                   ///< of this process
    std::array<std::uint64_t, places> owned{};  ///< serials; 0: nothing
  };
  std::array<peer_state, 2> peers_;
  std::uint64_t last_peer_ = 0;
  std::map<std::uint64_t, cuda_shared> shared_;
  std::uint64_t last_serial_ = 0;
};

/// The real cache and the oracle, driven together.
class both {
 public:
  both(gpu_world& world, const setup& as, emulated_cuda::second_open rule)
      : world_(world), oracle_(as.options, as.capacity), cache_(cuda_ipc_importer(), as.options) {
    emulation().reset();
    emulation().set_second_open(rule);
    emulation().max_mappings(as.capacity);
    oracle_.counts_opens = oracle_.mapped_before_stale = true;
    for (std::uint32_t i = 0; i < 6; ++i) allocate(i, i * 5);
  }

  void take(const step& s) {
    ++steps_done;
    switch (s.what) {
      case kind::acquire: return acquire(handle(s.a), part(handle(s.a), s.b));
      case kind::release: return release(s.a, false);
      case kind::release_elsewhere: return release(s.a, true);
      case kind::find: return find(handle(s.a), part(handle(s.a), s.b));
      case kind::allocate: return allocate(s.a, s.b);
      case kind::invalidate: return invalidate(handle(s.a), s.b);
      case kind::kill: return kill(s.a % 2);
      case kind::drop: return drop(handle(s.a).exporter);
      case kind::fail_opens: return fail_one_open(s.b % 2 == 0);
      case kind::fail_closes: oracle_.failing_closes = 1; return fail("cuIpcCloseMemHandle", status::launch_failed);
      case kind::progress: return same(oracle_.progress(), cache_.progress());
      case kind::flush: return same(oracle_.flush(), cache_.flush());
      case kind::count_: return;
    }
  }

  void compare() {
    auto expected = oracle_.listed();
    decltype(expected) actual;
    for (const auto& e : cache_.dump())
      actual.emplace(e.peer.value, e.covered.begin, e.covered.end, e.state, e.leases, e.bypass);
    RC_ASSERT(actual == expected);
    const auto now = cache_.statistics();
    const auto driver = gpu().counters();
    RC_ASSERT(now.open == cache_.backend().held());
    RC_ASSERT(driver.live_mappings <= now.open);
    RC_ASSERT(driver.opens == driver.mapped);
    RC_ASSERT(driver.double_closes + driver.wrong_closes == 0U);
    RC_ASSERT(now.acquires == now.hits + now.misses + now.failed_acquires);
    RC_ASSERT(now.leases_now == leases_.size());
    for (const auto& one : leases_) RC_ASSERT(shows_its_bytes(one));
  }

  void finish() {
    emulation().fail("cuIpcOpenMemHandle", 1, 0, false);
    emulation().fail("cuIpcCloseMemHandle", 1, 0, false);
    oracle_.failing_closes = 0;
    while (!leases_.empty()) release(0, false);
    RC_ASSERT(bool(cache_.flush()));
    RC_ASSERT(gpu().counters().live_mappings == 0U);
    RC_ASSERT(cache_.statistics().bytes_now == 0U);
    world_.free_all();
  }

 private:
  struct leased {
    fake_handle of;
    std::size_t offset;
    oracle::item* item;
    cuda_cache::lease lease;
  };

  // Recent handles are requested most often; old and dead ones still sometimes.
  const fake_handle& handle(std::uint32_t number) const {
    const auto recent = std::min<std::size_t>(handles_.size(), number % 8 == 0 ? handles_.size() : 8);
    return handles_[handles_.size() - 1 - number / 8 % recent];
  }
  static range part(const fake_handle& of, std::uint32_t number) {
    const auto begin = of.base + 8 * (number % (of.size / 8));
    return number % 3 == 0 ? of.allocation() : range{begin, begin + 8};
  }
  static bool shows_its_bytes(const leased& one) {
    const auto* const byte = static_cast<const std::byte*>(one.lease.data());
    return *byte == pattern_byte(static_cast<std::uint32_t>(one.of.serial), one.offset);
  }
  void keep(const fake_handle& of, const range& where, cuda_cache::lease&& lease) {
    leases_.push_back({of, where.begin - of.base, oracle_.granted(), std::move(lease)});
  }

  void acquire(const fake_handle& wanted, const range& where) {
    const auto expected = oracle_.acquire(wanted, where);
    auto got = cache_.acquire({wanted.exporter}, world_.handle(wanted), where.begin, where.size());
    RC_LOG() << "acquire: expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : describe(got.error())) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
    if (got) keep(wanted, where, std::move(*got));
  }
  void find(const fake_handle& wanted, const range& where) {
    const bool expected = oracle_.find(wanted, where);
    auto got = cache_.find({wanted.exporter}, world_.handle(wanted), where.begin, where.size());
    RC_ASSERT(got.has_value() == expected);
    if (got) keep(wanted, where, std::move(*got));
  }
  void release(std::uint32_t number, bool elsewhere) {
    if (leases_.empty()) return;
    const auto at = leases_.begin() + number % static_cast<std::uint32_t>(leases_.size());
    auto taken = std::move(*at);
    leases_.erase(at);
    result<void> got;
    if (elsewhere) {
      std::jthread([&] { got = taken.lease.release(); }).join();
    } else {
      got = taken.lease.release();
    }
    same(oracle_.release(*taken.item), got);
  }
  void allocate(std::uint32_t where, std::uint32_t size) {
    const auto made = world_.allocate(
        where % 2, where / 2 % gpu_world::places, std::size_t{4096} * (1 + size % 4),
        [&](std::uint64_t serial) { oracle_.exported.remove_if([&](auto& old) { return old.serial == serial; }); });
    oracle_.exported.push_back(made);
    handles_.push_back(made);
  }
  void invalidate(const fake_handle& near, std::uint32_t number) {
    const range gone{near.base + number % 8192, near.base + number % 8192 + 1 + number};
    oracle_.invalidate(near.exporter, gone);
    cache_.invalidate({near.exporter}, gone);
  }
  void kill(std::size_t which) {
    const auto peer = world_.kill(which);
    oracle_.exported.remove_if([&](auto& old) { return old.exporter == peer; });
  }
  void drop(std::uint64_t peer) { same(oracle_.drop(peer), cache_.drop_peer({peer})); }
  void fail_one_open(bool for_good) {
    oracle_.failing_opens = 1;
    oracle_.open_failure = for_good ? errc::not_permitted : errc::out_of_resources;
    fail("cuIpcOpenMemHandle", for_good ? status::not_permitted : status::out_of_memory);
  }
  static void fail(const char* call, status code) { emulation().fail(call, 1, static_cast<int>(code), false); }
  static void same(bool expected, const result<void>& got) { RC_ASSERT(got.has_value() == expected); }

  gpu_world& world_;
  oracle oracle_;
  cuda_cache cache_;
  std::vector<fake_handle> handles_;
  std::vector<leased> leases_;
};

void agree(emulated_cuda::second_open rule) {
  if (real_gpu()) GTEST_SKIP() << "the oracle knows the emulated driver";
  gpu_world world;
  expect_agreement(model_steps() / 10, [&](const setup& as, const std::vector<step>& history) {
    both run(world, as, rule);
    for (const auto& one : history) {
      run.take(one);
      run.compare();
    }
    run.finish();
  });
  std::printf("%llu steps\n", static_cast<unsigned long long>(steps_done));
}

TEST(cuda_import_model, agrees_with_the_oracle_where_the_driver_counts_opens) {
  agree(emulated_cuda::second_open::counted);
}
TEST(cuda_import_model, agrees_with_the_oracle_where_the_driver_refuses_a_second_open) {
  agree(emulated_cuda::second_open::refused);
}

}  // namespace
}  // namespace pinfold::testing
