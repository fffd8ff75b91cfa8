// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One cache of a `start_up_model`: the steps of `ticket_side`, and restorations.
#pragma once

#include "model/restoration_oracle.hpp"
#include "model/ticket_side.hpp"

#include <pinfold/restoration.hpp>

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold::testing {

struct driven_restoration {
  restoration real;
  restoration_oracle expected;
  worker_gate::stop* at = nullptr;
};

template <class World>
class start_up_side : public ticket_side<World> {
  using base = ticket_side<World>;
  using base::ended_, base::failing_opens_, base::gate_, base::large_, base::tickets_;
  using typename base::ticket_type;

 public:
  using base::cache_, base::oracle_, base::taken, base::leases_, base::at, base::some_access, base::some_range;
  using typename base::registrar_type;

  start_up_side(World& world, const setup& as, std::shared_ptr<worker_gate> gate)
      : base(world, possible(as), std::move(gate)), exact_(as.options.serial) {}
  ~start_up_side() { base::world_.device->fail_opens(nullptr); }
  start_up_side(const start_up_side&) = delete;
  start_up_side& operator=(const start_up_side&) = delete;

  /// Whether the oracle knows which of several entries serves a request.
  [[nodiscard]] bool knows_hits(const range& memory, access_flags need) const {
    return exact_ || oracle_.serving(memory, need) <= 1;
  }

  void take(const step& s) {
    switch (s.what) {
      case kind::quiesce: return quiesce(s);
      case kind::restore: return restore(s);
      case kind::ticket: return tickets_.size() < 2 ? base::take(s) : go_on(s);
      case kind::go_on: return go_on(s);
      default: return base::take(s);
    }
  }

  void compare() {
    base::compare();
    if (!restoration_) return;
    const auto now = restoration_->real.progress();
    const auto& expected = restoration_->expected.now();
    RC_ASSERT(now.total == expected.total);
    RC_ASSERT(now.restored == expected.restored);
    RC_ASSERT(now.skipped == expected.skipped);
    RC_ASSERT(now.failed == expected.failed);
    RC_ASSERT(now.bytes == expected.bytes);
    RC_ASSERT(restoration_->real.done() != restoration_->expected.in_driver());
    RC_ASSERT(restoration_->real.failure().has_value() != restoration_->expected.failure().has_value());
    if (const auto why = restoration_->expected.failure()) RC_ASSERT(restoration_->real.failure().error().code == *why);
  }

  void finish() {
    failing_opens_ = oracle_.failing_opens = 0;
    base::fail_closes(0);
    end_all_work();
    base::finish();
  }

  /// What outlives the cache.
  struct remains {
    std::shared_ptr<fake_device> device;
    std::list<driven_ticket<registrar_type>> tickets;
    std::list<driven_lease<registrar_type>> large;
    std::optional<driven_restoration> restoring;
    std::vector<typename base::leased> leases;
  };
  /// Takes what will outlive the cache, and makes the driver obey.
  remains leave() {
    base::fail_closes(0);
    base::world_.device->fail_opens(nullptr);
    tickets_.splice(tickets_.end(), ended_);
    return {base::world_.device, std::move(tickets_), std::move(large_), std::exchange(restoration_, std::nullopt),
            std::move(leases_)};
  }

 private:
  // No waits: the model knows that no other thread runs. One kind of caches counts all hits, which makes them look up
  // each request under the mutex, in the order that the oracle knows.
  static setup possible(setup as) {
    as.options.entry_statistics = as.options.serial;
    as.options.serial = false;
    as.options.wait_timeout = as.options.drain_timeout = std::chrono::milliseconds{0};
    return as;
  }

  void go_on(const step& s) {
    const auto running = base::in_driver();
    const bool restores = restoration_ && restoration_->at != nullptr;
    const auto all = running.size() + (restores ? 1 : 0);
    if (all == 0) return;
    const auto chosen = s.a % all;
    const auto job = some_job(s, chosen < running.size() ? running[chosen] : nullptr);
    chosen < running.size() ? base::go_on(*running[chosen], job) : go_on_restoring(job);
  }
  /// Returns what the thread in the driver does before it opens; the oracle has done it.
  std::function<void()> some_job(const step& s, ticket_type* ticket) {
    const auto memory = some_range(s.b / 8);
    switch (s.b % 8) {
      case 0: oracle_.invalidate(memory); return [this, memory] { cache_.invalidate(at(memory), memory.size()); };
      case 1: oracle_.unpersist(memory); return [this, memory] { cache_.unpersist(at(memory), memory.size()); };
      case 2: {
        if (ticket == nullptr || !ticket->real) return {};
        const bool closed = ticket->expected.cancel(true);
        return [ticket, closed] {
          if (ticket->real->cancel(cancel_policy::give_back).has_value() != closed) std::abort();
        };
      }
      default: return {};
    }
  }
  void quiesce(const step& s) {
    if (s.a % 4 != 0) {
      base::release_all();
      while (!large_.empty()) base::release_large(0);
    }
    if (s.a % 4 > 1)
      for (auto& one : tickets_)
        if (!one.expected.taken()) base::cancel(one, true);
    if (s.a % 4 == 3) end_all_work();
    end_restoring();  // as `quiesce` itself does, which waits for what is in the driver
    if (exact_ && oracle_.leased() + oracle_.opening() == 0) make_hits_differ();
    base::quiesce();
  }
  // Without the same number of hits twice, the order of a restoration is known.
  void make_hits_differ() {
    for (;;) {
      auto all = oracle_.worth_restoring();
      const auto same_hits =
          std::adjacent_find(all.begin(), all.end(), [](auto& a, auto& b) { return a.hits == b.hits; });
      if (same_hits == all.end()) return;
      const auto before = oracle_.hits_on(same_hits->memory, same_hits->access);
      base::acquire(same_hits->memory, same_hits->access, {});
      base::release(static_cast<std::uint32_t>(leases_.size() - 1), false);
      if (oracle_.hits_on(same_hits->memory, same_hits->access) != before) continue;
      oracle_.invalidate(same_hits->memory);  // another entry serves its requests
      cache_.invalidate(at(same_hits->memory), same_hits->memory.size());
    }
  }
  void restore(const step& s) {
    if (restoration_) {
      if (s.b % 4 == 0) cancel_restoring();
      if (restoration_->at != nullptr) return go_on_restoring({});
      restoration_.reset();
      return;
    }
    if (!exact_ && oracle_.quiesced().size() > 1) return;
    restoration_.emplace(driven_restoration{{}, restoration_oracle(oracle_)});
    restoration_->at = gate_->run(
        [&] {
          auto begun = cache_.restore({.workers = 1});
          RC_ASSERT(begun.has_value());
          restoration_->real = std::move(*begun);
        },
        [&] { return restoration_->real.done(); });
    follow_restoring();
  }
  void cancel_restoring() {
    restoration_->real.cancel();
    restoration_->expected.cancel();
  }
  void go_on_restoring(const std::function<void()>& job) {
    restoration_->at = gate_->go_on(restoration_->at, [&] { return restoration_->real.done(); }, job);
    follow_restoring();
  }
  void follow_restoring() {
    restoration_->expected.run();
    RC_ASSERT(restoration_->expected.in_driver() == (restoration_->at != nullptr));
  }

  void end_restoring() {
    if (!restoration_) return;
    cancel_restoring();
    while (restoration_->at != nullptr) go_on_restoring({});
    restoration_.reset();
  }
  void end_all_work() {
    end_restoring();
    base::end_tickets();
  }

  bool exact_;
  std::optional<driven_restoration> restoration_;
};

}  // namespace pinfold::testing
