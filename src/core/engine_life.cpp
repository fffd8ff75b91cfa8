// SPDX-License-Identifier: BSD-3-Clause
// Construction, and the end of the engine, which may outlive its cache.
#include "core/engine.hpp"

#include <algorithm>
#include <new>

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

engine* engine::make(const driver& table, cache_options options, watched_by monitors, std::shared_ptr<void> backend) {
  index::control_block* own = index::take_control_block();
  if (own == nullptr) throw std::bad_alloc();
  try {
    auto* made = new engine(*own, table, std::move(options), std::move(monitors), std::move(backend));
    os::scoped_lock guard(own->guard);
    return own->home = made;
  } catch (...) {
    index::give_back(own);
    throw;
  }
}

// Leaves the control block: from now on a late release finds no engine.
void engine::leave_control_block() noexcept {
  control_.guard.says_held();
  control_.home = nullptr;
}

void engine::destroy(engine* ended) noexcept {
  if (ended == nullptr) return;
  index::control_block* own = &ended->control_;
  delete ended;
  index::give_back(own);
}

engine::engine(index::control_block& own, const driver& table, cache_options options, watched_by monitors,
               std::shared_ptr<void> backend)
    : hits_(table.token_bytes > 0),
      hits_before_(ledger::hits(number_)),
      finds_before_(ledger::finds(number_)),
      token_offset_(token_offset_in(table)),
      driver_(table),
      backend_(std::move(backend)),
      options_(sensible(std::move(options))),
      event_log_(invalidation::event_log::here()),
      process_(own.process),
      watched_(table.token_bytes > 0 ? nullptr : &invalidation::registered_filter::here()),
      monitors_(std::move(monitors.set)),
      failures_before_(monitors_ ? monitors_->failures() : 0),
      changes_told_(monitors_ ? monitors_->changes() : 0),
      tuning_(std::move(monitors.hints)),
      keeps_(monitors.keeps),
      monitors_text_(with_audit(std::move(monitors.text), options_.audit_one_in)),
      control_(own),
      mutex_(own.guard),
      budget_(options_.max_bytes, options_.max_count),
      pool_(own, table.token_bytes > 0),
      table_(table, options_, {hits_, view_, hits_need_the_mutex_, pool_, budget_, counters_, watched_}),
      cursor_(event_log_.generation().load()),
      sweep_(table.token_bytes > 0 ? options_.idle_timeout : std::chrono::milliseconds(0)) {
  const bool imports = table.token_bytes > 0;
  view_.generation = imports ? &event_log_.process_word() : &event_log_.generation();
  view_.kernels = monitors_ ? &monitors_->kernel_generation() : &invalidation::monitor_set::nothing_counted();
  view_.seen = imports ? own.process : cursor_ + (monitors_ ? monitors_->drain() : 0);
  view_.number = number_;
  view_.number_in_word = number_ << record::cache_shift;
  view_.salt = std::uintptr_t{number_} * 81007;  // by the golden section of a thread's hints
  static_cast<void>(os::barrier_in_use());       // before the first pin
  if (const auto one_in = core::page_audit::possible(options_.audit_one_in); one_in && !imports)
    audit_.emplace(*one_in);
  hits_need_the_mutex_ =
      !options_.retain || options_.entry_statistics || options_.trace_requests || number_ == 0 || audit_.has_value();
  reaper_runs_ = options_.reaper;
  if (options_.reaper) reaper_ = std::thread(run_reaper, this);
}

engine::~engine() = default;

// Returns the number of leases, and for moments also of threads that wait for an opener. Reads all entries
// and ledgers.
std::uint64_t engine::leases_out() const noexcept {
  std::int64_t all = 0;
  pool_.for_each(
      [&](index::record_page& page, std::size_t number) { all += index::counted_in(*page.own_pins(number)); });
  ledger::for_each([&](const record* one, std::int64_t count) {
    if (index::record_page::of(one).owner.load(std::memory_order_acquire) == &control_) all += count;
  });
  return all < 0 ? 0 : static_cast<std::uint64_t>(all);
}

// Whether no thread needs the engine any more.
bool engine::unused() const noexcept { return in_use() == 0 && table_.closes_in_flight() == 0 && !reaper_runs_; }

// Returns the engine when its cache has ended and no thread needs it any more: then the caller destroys it.
engine* engine::leave_if_last() noexcept {
  if (!orphaned_ || !unused()) return nullptr;
  PINFOLD_ASSERT(table_.closes_in_flight() == 0 && table_.opens_in_driver() == 0, "no thread is in the driver");
  leave_control_block();
  return this;
}

}  // namespace pinfold::detail
