// SPDX-License-Identifier: BSD-3-Clause
// An import cache over the release protocol, and the exporter whose memory it opens: scenarios of `import_operations`.
#include "imports.hpp"

#include "forks.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/release/registry.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/fixtures/cache_checks.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::explore {

namespace {

constexpr std::uint64_t exporter = 7;
constexpr peer_id peer{1};
constexpr std::uint64_t bytes = 4096;
constexpr std::uint64_t base_of(std::uint64_t place) { return (std::uint64_t{1} << 40U) + place * bytes; }

/// Names one memory at one of two places.
struct handle {
  std::uint64_t exporter = explore::exporter;
  std::uint64_t serial = 0;
  std::uint64_t base = 0;
  std::uint64_t start_time = 0;
  std::int32_t pid = 0;
  std::int32_t unused = 0;
  friend bool operator==(const handle&, const handle&) noexcept = default;
};

/// The exporter, and what the importer's driver has open. One thread runs at a time, so nothing here is locked.
struct shared_world {
  struct memory {
    bool answered = false;  ///< the importer has said that it returns the memory no more
    bool freed = false;
  };
  std::map<std::uint64_t, memory> memories;  ///< by serial
  std::array<handle, 2> newest;
  std::map<std::uint64_t, handle> open;  ///< mappings
  std::uint64_t last = 0;
  std::uint64_t last_serial = 0;
  bool excludes = false;  ///< the driver refuses a second mapping of a place, with `already_mapped`
  bool slow = false;
  bool ending = false;
  bool inherited = false;  ///< this is a child's copy: no driver may be called any more
  unsigned failing_closes = 0;
  release_registry registry{exporter};

  void allocate(std::size_t place) {
    const auto serial = ++last_serial;
    memories[serial] = {};
    if (!registry.add(serial)) all_threads.fail("no memory");
    newest.at(place) = {.serial = serial, .base = base_of(place)};
  }

  /// Counts the importer, as an exporter does before it sends the handle. Returns nothing where it does not send it.
  std::optional<handle> lend(std::size_t place) {
    const handle made = newest.at(place);
    return registry.lend(made.serial, peer.value) ? std::optional(made) : std::nullopt;
  }

  void work() const {
    point("driver");
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
};

class truthful_importer {
 public:
  static constexpr const char* name = "truthful";
  static constexpr bool allows_duplicates = false;
  using handle_type = handle;
  struct registration_type {
    std::uint64_t number;
  };

  explicit truthful_importer(std::shared_ptr<shared_world> in) : world_(std::move(in)) {}

  [[nodiscard]] result<range> check(const handle& of) const noexcept { return range{of.base, of.base + bytes}; }
  [[nodiscard]] result<imported<registration_type>> open(peer_id /*peer*/, const handle& of) noexcept {
    if (world_->inherited) all_threads.fail("the parent's driver is asked to open");
    point("driver");
    if (world_->memories[of.serial].freed) return fail(errc::stale_handle, "the memory is freed");
    for (const auto& [number, one] : world_->open)
      if (world_->excludes && one.base == of.base) return fail_errno(errc::already_mapped, 208, "another is mapped");
    const auto number = ++world_->last;
    world_->open[number] = of;
    world_->work();
    return imported<registration_type>{
        .covered = {of.base, of.base + bytes}, .data = nullptr, .bytes = bytes, .registration = {number}};
  }
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    if (world_->inherited) all_threads.fail("the parent's driver is asked to close");
    world_->work();
    if (!world_->open.contains(mapping.number)) all_threads.fail("closed twice");
    if (world_->failing_closes > 0 && !world_->ending) {
      --world_->failing_closes;
      return fail_errno(errc::driver_error, 5, "the close fails");
    }
    world_->open.erase(mapping.number);
    return {};
  }

 private:
  std::shared_ptr<shared_world> world_;
};

using peers = import_cache<releasing_importer<truthful_importer>>;

/// In a child, what an import cache must do that is the child's own, with an exporter and a listener of its own.
class own_imports {
 public:
  void check() {
    world_->allocate(0);
    const handle sent = *world_->lend(0);
    for (int i = 0; i < 2; ++i)
      if (!cache_.acquire(peer, sent, sent.base, bytes)) all_threads.fail("no lease of an import cache of its own");
    if (world_->last != 1) all_threads.fail("an import cache of its own opens twice");
    if (!cache_.find(peer, sent, sent.base, bytes)) all_threads.fail("an import cache of its own does not find");
    if (listener_.statistics().mappings != 1) all_threads.fail("a listener of its own does not count a mapping");
    if (!cache_.flush()) all_threads.fail("an import cache of its own cannot be flushed");
    testing::expect_counters_add_up(cache_.statistics());
    if (!world_->open.empty()) all_threads.fail("flush left a mapping of an import cache of its own");
  }

 private:
  std::shared_ptr<shared_world> world_ = std::make_shared<shared_world>();
  release_listener listener_ = release_listener::create([](const release_message&) {}).value();
  peers cache_{releasing_importer<truthful_importer>(truthful_importer(world_), listener_), {.shards = 4}};
  release_listener::attachment attached_ = listener_.attach(cache_).value();
};

class import_stage {
 public:
  explicit import_stage(const scenario& what)
      : what_(what),
        random_(static_cast<unsigned>(what.choices % 2147483646U + 1U)),
        plain_(what.choices <= scenario::several_shards),
        listener_(release_listener::create([this](const release_message& said) { answer(said); }).value()) {
    world_->excludes = one_in(2);
    world_->slow = one_in(3);
    if (one_in(6)) world_->failing_closes = 1;
    may_fail_ = !plain_ || all_threads.jumps();
    if (has(operation::fork)) all_threads.expect_forks();
    cache_.emplace(releasing_importer<truthful_importer>(truthful_importer(world_), listener_), options());
    attached_ = listener_.attach(*cache_).value();
    for (const std::size_t place : {0U, 1U}) world_->allocate(place);
    old_ = *world_->lend(0);
    if (what.with == before::cached) touch(old_);
    if (has(operation::release)) held_ = *cache_->acquire(peer, old_, old_.base, bytes);
    if (one_in(2)) {  // a peer keeps the old handle
      if (!held_) retire(0);
    }
  }

  void run() {
    std::vector<std::thread> threads;
    calls_ = what_.threads.size();
    for (const operation each : what_.threads)
      threads.emplace_back([this, each, place = one_in(3) ? 1U : 0U] {
        all_threads.name_this_thread(name_of(each));
        act(each, place);
        if (each != operation::destroy && each != operation::fork) leave();
      });
    all_threads.arm();
    for (auto& each : threads) each.join();
    all_threads.disarm();
  }

  void check() {
    held_ = {};
    if (cache_) {
      static_cast<void>(listener_.progress());
      static_cast<void>(cache_->flush());
      const auto flushed = cache_->flush();  // the first may meet a close that fails once
      if (!flushed) all_threads.fail("flush: %s", describe(flushed.error()).c_str());
      testing::expect_counters_add_up(cache_->statistics());
      EXPECT_EQ(cache_->statistics().open, 0U);
      EXPECT_EQ(listener_.statistics().mappings, 0U);
      static_cast<void>(listener_.progress());
      free_what_nobody_holds();
      for (const auto& [serial, one] : world_->memories)
        if (retiring(serial) && !one.freed) all_threads.fail("the exporter was never told that its memory is let go");
    }
    end();
    std::this_thread::sleep_for(std::chrono::seconds(100));
    if (!world_->open.empty()) all_threads.fail("a mapping was never closed");
  }

 private:
  bool one_in(unsigned many) { return random_() % many == 0 && !plain_; }
  bool has(operation one) const { return std::ranges::count(what_.threads, one) > 0; }
  bool retiring(std::uint64_t serial) const { return std::ranges::count(retired_, serial) > 0; }

  cache_options options() {
    cache_options chosen{.shards = what_.choices == scenario::several_shards || one_in(3) ? 4U : 1U};
    if (one_in(4)) chosen.closes = close_policy::deferred;
    if (one_in(4)) chosen.max_count = 1;
    if (one_in(2)) chosen.full = one_in(2) ? when_full::bypass : when_full::wait;
    if (one_in(2)) chosen.wait_timeout = std::chrono::milliseconds(100);
    if (one_in(2)) chosen.drain_timeout = std::chrono::milliseconds(0);
    chosen.reaper = one_in(8);
    return chosen;
  }

  void touch(const handle& of) {
    if (!cache_->acquire(peer, of, of.base, bytes) && !may_fail_) all_threads.fail("no lease");
  }

  /// An answer reaches the exporter.
  void answer(const release_message& said) {
    point("answer");
    static_cast<void>(world_->registry.receive(peer.value, said));
    if (said.state != release_state::silent && retiring(said.serial)) world_->memories[said.serial].answered = true;
    free_what_nobody_holds();
  }

  void free_what_nobody_holds() {
    for (const auto serial : retired_) {
      auto& one = world_->memories[serial];
      const auto seen = world_->registry.report(serial);
      if (one.freed || !seen || !seen->holders.empty()) continue;
      one.freed = true;
      for (const auto& [number, mapping] : world_->open)
        if (mapping.serial == serial) all_threads.fail("memory is freed while the importer has it mapped");
    }
  }

  /// The exporter retires the memory at the place, and allocates other memory there once it is freed.
  void retire(std::size_t place) {
    const auto serial = world_->newest.at(place).serial;
    if (retiring(serial)) return;
    retired_.push_back(serial);
    if (const auto begun = world_->registry.begin_retire(serial, std::chrono::milliseconds(10)); !begun)
      all_threads.fail("memory %llu: %s", static_cast<unsigned long long>(serial), describe(begun.error()).c_str());
    while (const auto request = world_->registry.next_request(peer.value)) {
      point("request");
      static_cast<void>(listener_.receive(*request));
    }
    free_what_nobody_holds();
    if (world_->memories[serial].freed) world_->allocate(place);
  }

  void hold(const peers::lease& lease, const handle& of, bool answered) {
    if (world_->ending) return;
    const auto number = lease.registration().number;
    const auto found = world_->open.find(number);
    if (found == world_->open.end()) all_threads.fail("a lease on a mapping that is closed");
    if (!(found->second == of)) all_threads.fail("a lease on other memory than the handle names");
    if (answered) all_threads.fail("a lease on memory that the importer had said it returns no more");
    point("holds");
    if (!world_->ending && !world_->open.contains(number)) all_threads.fail("the mapping under a lease was closed");
    if (world_->memories[of.serial].freed) all_threads.fail("the memory under a lease was freed");
  }

  void take(const handle& of, bool finds) {
    const bool answered = world_->memories[of.serial].answered;
    auto lease = finds ? cache_->find(peer, of, of.base, bytes) : std::optional<peers::lease>();
    if (!finds) {
      auto got = cache_->acquire(peer, of, of.base, bytes);
      if (got) lease = std::move(*got);
    }
    if (lease) hold(*lease, of, answered);
  }

  void take_lent(std::size_t place) {
    if (const auto sent = world_->lend(place)) take(*sent, false);
  }

  // As in scenario.cpp.
  void fork(const handle& of) {
    const bool answered = world_->memories[of.serial].answered;
    auto mine = cache_->find(peer, of, of.base, bytes);
    leave();
    fork_here([&] { check_child(mine); });
    if (mine) hold(*mine, of, answered);
  }

  void check_child(std::optional<peers::lease>& mine) {
    world_->inherited = true;
    check_inherited();
    own_imports().check();
    check_inherited();
    if (mine && !mine->release()) all_threads.fail("the parent's lease cannot be released");
    if (!held_.release()) all_threads.fail("the lease of another thread cannot be released");
    attached_ = {};
    cache_.reset();
  }

  template <class Result>
  static void refused(const Result& got, errc why, const char* call) {
    if (got || got.error() != why) all_threads.fail("%s works on what is the parent's", call);
  }

  void check_inherited() {
    if (cache_) check_refused(*cache_);
    refused(listener_.progress(), errc::unsupported, "progress of the listener");
    refused(listener_.receive(release_message{}), errc::unsupported, "receive");
    if (listener_.statistics().mappings != 0) all_threads.fail("the child counts mappings of its parent");
  }

  void check_refused(peers& of) {
    for (const handle& each : {old_, world_->newest[0], world_->newest[1]}) {
      if (of.find(peer, each, each.base, bytes)) all_threads.fail("the child finds a mapping of its parent");
      refused(of.acquire(peer, each, each.base, bytes), errc::closed, "acquire");
      of.invalidate(peer, {each.base, each.base + bytes});
    }
    refused(of.flush(), errc::closed, "flush");
    refused(of.quiesce(), errc::closed, "quiesce");
    refused(of.progress(), errc::closed, "progress");
    refused(of.drop_peer(peer), errc::closed, "drop_peer");
    refused(listener_.attach(of), errc::unsupported, "attach");
    if (of.evict(1) != 0) all_threads.fail("the child evicts");
    static_cast<void>(of.statistics());
  }

  void act(operation what, std::size_t place) {
    switch (what) {
      case operation::acquire: return take_lent(place);
      case operation::find: return take(world_->newest.at(place), true);
      case operation::late: return take(old_, false);
      case operation::release: return static_cast<void>(std::exchange(held_, {}));
      case operation::retire: return retire(place);
      case operation::drop_peer: return static_cast<void>(cache_->drop_peer(peer));
      case operation::invalidate: return cache_->invalidate(peer, {base_of(place), base_of(place) + bytes});
      case operation::evict: return static_cast<void>(cache_->evict(1));
      case operation::flush: return static_cast<void>(cache_->flush());
      case operation::progress: return static_cast<void>(listener_.progress());
      case operation::quiesce: return static_cast<void>(cache_->quiesce());
      case operation::destroy: return destroy();
      case operation::fork: return fork(world_->newest.at(place));
      default: all_threads.fail("no operation of imports");
    }
  }

  void leave() {
    if (--calls_ == 0) all_threads.wake(&calls_, static_cast<int>(most_threads));
  }

  // As in scenario.cpp.
  void destroy() {
    leave();
    while (calls_ > 0) all_threads.wait(&calls_, never, "calls");
    if (!std::exchange(world_->ending, true)) end();
  }

  void end() {
    world_->ending = true;
    attached_ = {};
    cache_.reset();
  }

  const scenario& what_;
  std::minstd_rand random_;
  bool plain_;
  bool may_fail_ = false;
  std::shared_ptr<shared_world> world_ = std::make_shared<shared_world>();
  std::vector<std::uint64_t> retired_;  ///< serials
  release_listener listener_;
  std::optional<peers> cache_;
  release_listener::attachment attached_;
  handle old_;
  peers::lease held_;
  std::size_t calls_ = 0;
};

}  // namespace

void play_import(const scenario& what) {
  import_stage on(what);
  on.run();
  on.check();
}

}  // namespace pinfold::explore
