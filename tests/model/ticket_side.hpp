// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One cache of a `start_up_model` without its restorations: the steps of `local_model`, and tickets, whose threads
/// stop in the driver.
#pragma once

#include "model/local_model.hpp"
#include "model/ticket_oracle.hpp"
#include "model/worker_gate.hpp"

#include <pinfold/background.hpp>

#include <algorithm>
#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// A ticket with its oracle, until its work is gone.
template <registrar R>
struct driven_ticket {
  std::optional<background_registration<R>> real;  // none: the ticket has ended before its work
  ticket_oracle expected;
  worker_gate::stop* at = nullptr;
  std::shared_ptr<std::atomic<bool>> gone;  // whether the work was freed

  [[nodiscard]] bool idle() const { return real ? !real->progress().running : gone->load(); }
};

/// Leases of one ticket on several registrations.
template <registrar R>
struct driven_lease {
  large_lease<R> real;
  std::vector<std::pair<range, oracle::item*>> parts;
};

template <class World>
class ticket_side : public local_model<World> {
  using base = local_model<World>;

 public:
  using registrar_type = typename World::registrar_type;
  using base::cache_, base::oracle_, base::taken, base::leases_, base::same, base::at, base::failing_opens_;

  void take(const step& s) {
    switch (s.what) {
      case kind::release: return s.b % 4 == 0 && !large_.empty() ? release_large(s.a) : base::take(s);
      case kind::ticket: return start(s);
      case kind::ask: return with_ticket(s.a, [&](auto& one) { ask(one, s); });
      case kind::cancel: return with_ticket(s.a, [&](auto& one) { cancel(one, s.b % 2 == 0); });
      case kind::renew: return with_ticket(s.a, [&](auto& one) { renew(one); });
      case kind::take: return with_ticket(s.a, [&](auto& one) { take_all(one); });
      case kind::drop_ticket: return with_ticket(s.a, [&](auto& one) { drop(one); });
      default: return base::take(s);
    }
  }

  void compare() {
    base::compare();
    for (const auto& one : tickets_) compare(one);
    for (const auto& one : large_)
      RC_ASSERT(one.real.stale() ==
                std::any_of(one.parts.begin(), one.parts.end(), [](auto& part) { return part.second->stale; }));
  }

 protected:
  using ticket_type = driven_ticket<registrar_type>;

  ticket_side(World& world, const setup& as, std::shared_ptr<worker_gate> gate)
      : base(world, as), gate_(std::move(gate)) {
    world.device->on_open = [stops = gate_] { stops->come(); };
  }

  [[nodiscard]] access_flags some_access(std::uint32_t number) const {
    return static_cast<access_flags>(1 + number % base::every_right_);
  }
  /// Returns the tickets whose workers are in the driver.
  [[nodiscard]] std::vector<ticket_type*> in_driver() {
    std::vector<ticket_type*> all;
    for (auto* list : {&tickets_, &ended_})
      for (auto& one : *list)
        if (one.at != nullptr) all.push_back(&one);
    return all;
  }
  void go_on(ticket_type& one, const std::function<void()>& job) {
    one.at = gate_->go_on(one.at, [&] { return one.idle(); }, job);
    follow(one);
    ended_.remove_if([](auto& ended) { return ended.at == nullptr; });
  }
  void cancel(ticket_type& one, bool give_back) {
    const bool closed = one.expected.taken() || one.expected.cancel(give_back);
    const auto got = one.real->cancel(give_back ? cancel_policy::give_back : cancel_policy::keep);
    if (one.expected.taken()) return same_code(errc::closed, got);
    if (one.at != nullptr) return same_code(errc::timed_out, got);
    same_code(closed ? oracle::outcome() : errc::driver_error, got);
  }
  void release_large(std::uint32_t number) {
    const auto one = std::next(large_.begin(), static_cast<std::ptrdiff_t>(number % large_.size()));
    bool all = true;
    for (auto& [where, item] : one->parts) all = oracle_.release(*item) && all;
    same(all, one->real.release());
    large_.erase(one);
  }
  void end_tickets() {
    while (!tickets_.empty()) drop(tickets_.front());
    while (!ended_.empty()) go_on(ended_.front(), {});
    while (!large_.empty()) release_large(0);
  }

  std::shared_ptr<worker_gate> gate_;
  std::list<ticket_type> tickets_;
  std::list<ticket_type> ended_;  // their workers are still in the driver
  std::list<driven_lease<registrar_type>> large_;

 private:
  template <class Call>
  void with_ticket(std::uint32_t number, Call&& call) {
    if (!tickets_.empty()) call(*std::next(tickets_.begin(), static_cast<std::ptrdiff_t>(number % tickets_.size())));
  }

  void start(const step& s) {
    static constexpr std::size_t sizes[] = {4, 16, 50};
    std::vector<range> ranges;
    for (std::uint32_t i = 0; i <= s.a % 3; ++i) ranges.push_back(base::some_range((s.a >> 2U) + i * (s.b | 1U)));
    const auto each = sizes[s.b / 2 % 3] * base::world_.unit;
    const bool largest = s.b % 2 == 0;
    const auto need = some_access(s.b >> 3U);
    auto plan = plan_ticket(ranges, each, largest);
    auto gone = std::make_shared<std::atomic<bool>>(false);
    struct token {
      std::shared_ptr<std::atomic<bool>> gone;
      explicit token(std::shared_ptr<std::atomic<bool>> of) : gone(std::move(of)) {}
      token(const token&) = delete;
      token& operator=(const token&) = delete;
      ~token() { gone->store(true); }
    };
    const background_options how{.piece_bytes = each,
                                 .workers = 1,
                                 .order = largest ? background_order::largest_first : background_order::as_given,
                                 .progress = [held = std::make_shared<token>(gone)](std::size_t, std::size_t) {}};
    const bool fits = sum(plan) <= options().max_bytes && plan.pieces.size() <= options().max_count;
    if (!fits) {
      RC_ASSERT(cache_.register_in_background(ranges, need, how).error().code == errc::larger_than_budget);
      return;
    }
    tickets_.push_back({{}, ticket_oracle(oracle_, std::move(plan), need), nullptr, gone});
    auto& one = tickets_.back();
    one.at = gate_->run(
        [&] {
          auto got = cache_.register_in_background(ranges, need, how);
          RC_ASSERT(got.has_value());
          one.real.emplace(std::move(*got));
        },
        [&] { return one.idle(); });
    follow(one);
  }
  static std::size_t sum(const ticket_plan& plan) {
    std::size_t all = 0;
    for (const auto& one : plan.pieces) all += one.size();
    return all;
  }
  [[nodiscard]] const cache_options& options() const { return oracle_.options(); }

  /// Lets the oracle do what the worker has done.
  void follow(ticket_type& one) {
    one.expected.run([&](const range& where) -> std::optional<local_oracle::choice> {
      if (!one.real) return std::nullopt;
      const auto parts = one.real->list(at(where), where.size());
      if (!parts) return std::nullopt;
      const auto made = base::world_.device->now().at(base::world_.number_of(parts->front().registration));
      return local_oracle::choice{made.memory, made.access};
    });
    RC_ASSERT(one.expected.in_driver() == (one.at != nullptr));
  }

  static void same_code(const oracle::outcome& expected, const result<void>& got) {
    RC_LOG() << "expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : describe(got.error())) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
  }
  template <class T>
  static result<void> without_value(const result<T>& got) {
    if (!got) return tl::unexpected(got.error());
    return {};
  }

  void compare(const ticket_type& one) const {
    const auto now = one.real->progress();
    const auto& expected = one.expected;
    if (expected.taken()) {
      RC_ASSERT(now.pieces_total == 0U);
      return;
    }
    RC_ASSERT(now.pieces_done == expected.pieces_done());
    RC_ASSERT(now.bytes_done == expected.bytes(true));
    RC_ASSERT(now.pieces_total == expected.plan().pieces.size());
    RC_ASSERT(now.bytes_total == expected.bytes(false));
    RC_ASSERT(now.running == expected.running());
    RC_ASSERT(one.real->ready_up_to() == expected.ready_up_to());
    const auto why = one.real->failure();
    RC_ASSERT(why.has_value() == expected.failure().has_value());
    if (why) RC_ASSERT(why->why.code == expected.failure()->first);
    if (why) RC_ASSERT(why->where == expected.failure()->second);
  }

  void ask(ticket_type& one, const step& s) {
    const auto& pieces = one.expected.plan().pieces;
    const range whole = pieces[s.b % pieces.size()];
    const auto begin = whole.begin + s.b / 8 % 4;
    const range where{begin, std::max(begin + 1, whole.end + s.b / 32 % 24 - 4)};
    const bool was_taken = one.expected.taken();
    const auto closed_or = [&](oracle::outcome otherwise) {
      return was_taken ? oracle::outcome(errc::closed) : otherwise;
    };
    std::vector<std::pair<range, oracle::item*>> parts;
    const auto ready = closed_or(one.expected.ready(where, parts));
    switch (s.a / 2 % 5) {
      case 0: RC_ASSERT(one.real->ready(at(where), where.size()) == !ready); return;
      case 1: return same_code(closed_or(one.expected.waited()), one.real->wait_for({}));
      case 2:
        return same_code(closed_or(one.expected.waited_until_ready(where.end)),
                         one.real->wait_until_ready(where.end, {}));
      case 3: {
        const auto stale = one.real->stale();
        RC_ASSERT(stale.has_value() == !was_taken);
        if (stale) RC_ASSERT(*stale == one.expected.stale());
        return;
      }
      default: {
        auto got = one.real->acquire(at(where), where.size());
        same_code(ready, without_value(got));
        if (got) keep({std::move(*got), std::move(parts)}, true);
      }
    }
  }
  void keep(driven_lease<registrar_type> held, bool pinned_again) {
    RC_ASSERT(held.real.pieces() == held.parts.size());
    for (std::size_t i = 0; i < held.parts.size(); ++i) {
      auto& [where, item] = held.parts[i];
      RC_ASSERT(held.real.piece(i).where == where);
      const auto made = base::world_.device->now().at(base::world_.number_of(held.real.piece(i).held.registration()));
      RC_ASSERT(made.memory == item->memory);
      RC_ASSERT(made.access == item->access);
      if (pinned_again) ++item->leases;
    }
    large_.push_back(std::move(held));
  }
  void renew(ticket_type& one) {
    if (one.expected.taken()) return same_code(errc::closed, one.real->renew());
    if (!one.expected.renew()) return same_code({}, one.real->renew());
    one.at = gate_->run([&] { same_code({}, one.real->renew()); }, [&] { return one.idle(); });
    follow(one);
  }
  void take_all(ticket_type& one) {
    std::vector<std::pair<range, oracle::item*>> parts;
    const auto expected = one.expected.taken() ? oracle::outcome(errc::closed) : one.expected.take(parts);
    auto got = one.real->take();
    same_code(expected, without_value(got));
    if (got) keep({std::move(*got), std::move(parts)}, false);
  }
  void drop(ticket_type& one) {
    if (!one.expected.taken()) one.expected.cancel(true);
    one.real.reset();
    const auto place = std::find_if(tickets_.begin(), tickets_.end(), [&](auto& other) { return &other == &one; });
    if (one.at != nullptr) return ended_.splice(ended_.end(), tickets_, place);
    tickets_.erase(place);
  }
};

}  // namespace pinfold::testing
