// SPDX-License-Identifier: BSD-3-Clause
#include "core/engine_state.hpp"

#include "core/page_audit.hpp"

#include <pinfold/node_budget.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>
#include <utility>

namespace pinfold::detail {

namespace {

// Keeps deadlines representable for any time-out of the caller.
void clamp(std::chrono::milliseconds& timeout) noexcept {
  timeout = std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds{0}, std::chrono::years{1});
}

cache_options sensible(cache_options options) noexcept {
  clamp(options.full_timeout);
  clamp(options.conflict_timeout);
  clamp(options.wait_timeout);
  clamp(options.drain_timeout);
  clamp(options.idle_timeout);
  return options;
}

// Appends whether audits run, if the options ask for them.
core::cache_monitors::selected with_audit(core::cache_monitors::selected by, std::uint32_t one_in) {
  if (one_in != 0 && !by.text.empty())
    by.text += core::page_audit::possible(one_in) ? ", audited" : ", not audited: no CAP_SYS_ADMIN";
  return by;
}

}  // namespace

engine_state::engine_state(engine& self, const driver& table, cache_options options,
                           core::cache_monitors::selected monitors, std::shared_ptr<void> backend)
    : options_(sensible(std::move(options))),
      event_log_(invalidation::event_log::here()),
      process_(event_log_.process()),
      watched_(table.token_bytes > 0 ? nullptr : &invalidation::registered_filter::here()),
      monitors_(with_audit(std::move(monitors), options_.audit_one_in), options_.strict),
      reporter_(options_, make_page(table), counters_),
      driver_(table, std::move(backend), options_.serial, reporter_),
      budget_(options_.max_bytes, options_.max_count, shards_for(table, options_),
              options_.node_budget ? &options_.node_budget->inside() : nullptr),
      shards_(budget_.shares(), self, table, options_, {view_, hits_need_the_mutex_, watched_, budget_}) {
  view_.generation = driver_.imports() ? &event_log_.process_word() : &event_log_.generation();
  view_.kernels = &monitors_.kernel_generation();
  view_.number = number_;
  view_.number_in_word = number_ << record::cache_shift;
  // 2^17 divided by the golden ratio: caches with consecutive numbers begin far apart in a thread's table of hints.
  view_.salt = std::uintptr_t{number_} * 81007;
}

std::unique_ptr<observation::cache_page> engine_state::make_page(const driver& table) const {
  if (!options_.publish_statistics) return nullptr;
  return observation::cache_page::make({options_.name, table.name, monitors_.text(), options_.max_bytes,
                                        options_.max_count, shards_for(table, options_), options_.serial});
}

// A cache is not divided if it looks around the requested memory, for other tokens or to merge, or if it keeps nothing.
std::size_t engine_state::shards_for(const driver& table, const cache_options& options) noexcept {
  if (table.token_bytes > 0 || options.merge != merge_policy::none || !options.retain) return 1;
  if (options.shards != 0) return std::bit_ceil(std::min<std::size_t>(options.shards, core::shard_map::most_shards));
  constexpr std::size_t for_each_processor = 8;
  constexpr std::size_t least_entries = 1024;  // with fewer in a shard, evictions in turn cost more than they gain
  constexpr std::size_t least_bytes = std::size_t{4} << 20U;
  const std::size_t sensible =
      std::min({std::bit_ceil(for_each_processor * std::thread::hardware_concurrency()),
                options.max_count / least_entries, options.max_bytes / least_bytes, core::shard_map::most_shards});
  return std::max<std::size_t>(1, std::bit_floor(sensible));
}

std::uint64_t engine_state::leases_out() const noexcept {
  std::int64_t all = 0;
  for (const shard& in : shards_)
    in.pool.for_each(
        [&](index::record_page& page, std::size_t number) { all += index::counted_in(*page.own_pins(number)); });
  ledger::for_each([&](const record* one, std::int64_t count) {
    const auto* owner = index::record_page::of(one).owner.load(std::memory_order_acquire);
    if (owner != nullptr && owner->engine.load(std::memory_order_acquire) == this) all += count;
  });
  return all < 0 ? 0 : static_cast<std::uint64_t>(all);
}

std::uint64_t engine_state::leases_out(const shard& in) noexcept {
  std::int64_t all = 0;
  in.pool.for_each(
      [&](index::record_page& page, std::size_t number) { all += index::counted_in(*page.own_pins(number)); });
  ledger::for_each([&](const record* one, std::int64_t count) {
    if (index::record_page::of(one).owner.load(std::memory_order_acquire) == &in.control) all += count;
  });
  return all < 0 ? 0 : static_cast<std::uint64_t>(all);
}

void engine_state::lock_all() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  for (const shard& in : shards_) in.mutex.lock();
}

void engine_state::unlock_all() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  for (const shard& in : shards_) in.mutex.unlock();
}

// Under all mutexes: otherwise the sum could miss a pin that moves to an entry's counter, a lease that is followed by
// one in another shard, or an opener that publishes.
std::uint64_t engine_state::in_use() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  lock_all();
  auto all = leases_out();
  for (const shard& in : shards_) all += in.table.openings();
  unlock_all();
  return all;
}

std::size_t engine_state::closes_in_flight() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  std::size_t all = 0;
  for (const shard& in : shards_) all += in.table.closes_in_flight();
  return all;
}

}  // namespace pinfold::detail
