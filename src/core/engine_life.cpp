// SPDX-License-Identifier: BSD-3-Clause
// Construction, and the end of the engine, which may outlive its cache.
#include "core/engine.hpp"

#include <pinfold/node_budget.hpp>

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

namespace pinfold::detail {

namespace {

// Keeps deadlines representable, whatever the caller wrote.
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

std::size_t token_offset_in(const driver& table) noexcept {
  return token_offset(table.token_bytes > 0 ? imported_object_offset : local_object_offset, table.object_bytes);
}

// Appends whether audits run, if the options ask for them.
std::string with_audit(std::string monitors, std::uint32_t one_in) {
  if (one_in != 0 && !monitors.empty())
    monitors += core::page_audit::possible(one_in) ? ", audited" : ", not audited: no CAP_SYS_ADMIN";
  return monitors;
}

}  // namespace

std::unique_ptr<observation::cache_page> engine::make_page() const {
  if (!options_.publish_statistics) return nullptr;
  return observation::cache_page::make({options_.name, driver_.name, monitors_text_, options_.max_bytes,
                                        options_.max_count, shards_for(driver_, options_), options_.serial});
}

void engine::start_page() noexcept {
  if (!page_) return;
  page_->start({this, [](const void* self, bool complete) noexcept {
                  return static_cast<const engine*>(self)->read_statistics(complete);
                }});
}

engine* engine::make(const driver& table, cache_options options, watched_by monitors, std::shared_ptr<void> backend) {
  auto* made = new engine(table, std::move(options), std::move(monitors), std::move(backend));
  for (shard& in : made->shards_) {
    os::scoped_lock guard(in.mutex);
    in.control.guard.says_held();
    in.control.home = &in;
  }
  made->start_page();
  if (table.exclusive_in_process) made->neighbour_.join();
  return made;
}

void engine::destroy(engine* ended) noexcept { delete ended; }

// A cache is not divided if it looks around the memory that is asked for: for other tokens, or to merge. Nor if it
// keeps nothing.
std::size_t engine::shards_for(const driver& table, const cache_options& options) noexcept {
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

engine::engine(const driver& table, cache_options options, watched_by monitors, std::shared_ptr<void> backend)
    : hits_before_(ledger::hits(number_)),
      finds_before_(ledger::finds(number_)),
      token_offset_(token_offset_in(table)),
      driver_(table),
      backend_(std::move(backend)),
      options_(sensible(std::move(options))),
      event_log_(invalidation::event_log::here()),
      process_(event_log_.process()),
      watched_(table.token_bytes > 0 ? nullptr : &invalidation::registered_filter::here()),
      monitors_(std::move(monitors.set)),
      failures_before_(monitors_ ? monitors_->failures() : 0),
      changes_told_(monitors_ ? monitors_->changes() : 0),
      tuning_(std::move(monitors.hints)),
      keeps_(monitors.keeps),
      monitors_text_(with_audit(std::move(monitors.text), options_.audit_one_in)),
      page_(make_page()),
      meets_no_cancellation_point_(!table.cancellation_points && monitors_ == nullptr && options_.audit_one_in == 0 &&
                                   !times_opens()),
      budget_(options_.max_bytes, options_.max_count, shards_for(table, options_),
              options_.node_budget ? &options_.node_budget->inside() : nullptr),
      shards_(budget_.shares(), *this, table, options_, {view_, hits_need_the_mutex_, watched_, budget_}),
      listed_({this, event_log_.process_word(), process_, number_, hits_before_, finds_before_, driver_, options_},
              shards_),
      cursor_(event_log_.generation().load(std::memory_order_seq_cst)),
      owing_(shards_.size() + 1) {
  const bool imports = table.token_bytes > 0;
  view_.generation = imports ? &event_log_.process_word() : &event_log_.generation();
  view_.kernels = monitors_ ? &monitors_->kernel_generation() : &invalidation::monitor_set::nothing_counted();
  view_.seen = imports ? process_ : cursor_ + (monitors_ ? monitors_->drain() : 0);
  view_.number = number_;
  view_.number_in_word = number_ << record::cache_shift;
  view_.salt = std::uintptr_t{number_} * 81007;  // by the golden section of a thread's hints
  static_cast<void>(os::barrier_in_use());       // before the first pin
  if (const auto one_in = core::page_audit::possible(options_.audit_one_in); one_in && !imports)
    audit_.emplace(*one_in);
  hits_need_the_mutex_ =
      !options_.retain || options_.entry_statistics || options_.trace_requests || number_ == 0 || audit_.has_value();
  if (!options_.reaper) return;
  reaper_runs_ = true;
  ++owing_;
  reaper_ = std::thread(run_reaper, this);
}

engine::~engine() = default;

// Returns the number of leases, and for moments also of threads that wait for an opener. Reads all entries
// and ledgers.
std::uint64_t engine::leases_out() const noexcept {
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

std::uint64_t engine::leases_out(const shard& in) noexcept {
  std::int64_t all = 0;
  in.pool.for_each(
      [&](index::record_page& page, std::size_t number) { all += index::counted_in(*page.own_pins(number)); });
  ledger::for_each([&](const record* one, std::int64_t count) {
    if (index::record_page::of(one).owner.load(std::memory_order_acquire) == &in.control) all += count;
  });
  return all < 0 ? 0 : static_cast<std::uint64_t>(all);
}

void engine::lock_all() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  for (const shard& in : shards_) in.mutex.lock();
}

void engine::unlock_all() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  for (const shard& in : shards_) in.mutex.unlock();
}

// Under all mutexes: else a pin that moves to an entry's counter, a lease that is followed by one in another shard, and
// an opener that publishes could be missed.
std::uint64_t engine::in_use() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  lock_all();
  auto all = leases_out();
  for (const shard& in : shards_) all += in.table.openings();
  unlock_all();
  return all;
}

std::size_t engine::closes_in_flight() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  std::size_t all = 0;
  for (const shard& in : shards_) all += in.table.closes_in_flight();
  return all;
}

// Lets a shard go when its cache has ended and no thread needs it any more: from now on a late release finds no shard.
// Returns the engine when that was the last thing that needed it: then the caller destroys it.
engine* engine::leave_if_last(shard& in) noexcept {
  if (!in.orphaned || leases_out(in) + in.table.openings() + in.table.closes_in_flight() > 0) return nullptr;
  PINFOLD_ASSERT(in.table.opens_in_driver() == 0, "no thread is in the driver");
  in.control.guard.says_held();
  if (std::exchange(in.control.home, nullptr) == nullptr) return nullptr;
  return leave();
}

// What the calling thread did may have been the last use of a shard. Requires that the caller itself has not left.
void engine::leave_shards() noexcept {
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    [[maybe_unused]] const engine* last = leave_if_last(in);
    PINFOLD_ASSERT(last == nullptr, "the caller itself has not left");
  }
}

engine* engine::leave() noexcept {
  PINFOLD_ASSERT(owing_.load(std::memory_order_relaxed) > 0, "what needs the engine is counted");
  return owing_.fetch_sub(1, std::memory_order_acq_rel) == 1 ? this : nullptr;
}

}  // namespace pinfold::detail
