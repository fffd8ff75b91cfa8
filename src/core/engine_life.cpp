// SPDX-License-Identifier: BSD-3-Clause
// Construction, waiting, events for the sink, the reaper's thread.
#include "core/engine.hpp"

#include <algorithm>
#include <cstdio>
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

// The index has only entries that could not be closed.
engine::~engine() {
  if (watched_ != nullptr) index_.for_each([this](entry& one) { watched_->remove(one.covered()); });
}

bool engine::wait_for(const void* what, core::deadline until) noexcept {
  const auto start = std::chrono::steady_clock::now();
  if (start >= until) return false;
  const bool in_time = waiting_.wait(what, mutex_, until);
  const auto spent = std::chrono::steady_clock::now() - start;
  counters_.add(counter::waited_ns, static_cast<std::uint64_t>(std::chrono::nanoseconds(spent).count()));
  return in_time;
}

event engine::about(const entry& one, event_kind kind, severity level) const noexcept {
  event what{kind, level};
  what.peer = one.peer();
  what.where = one.covered();
  what.leases = pins_of(one);
  what.owner = one.owner();
  return what;
}

void engine::tell(event what) noexcept {
  if (!options_.sink || silent_.load(std::memory_order_relaxed)) return;
  what.cache = options_.name.c_str();
  try {
    options_.sink(what);
  } catch (...) {  // an exception of the sink must not reach a destructor; it is counted
    counters_.add(core::shared_counter::sink_failures);
  }
}

void engine::reap() noexcept {
  while (!reaper_stop_) {
    if (queued_.empty()) {
      wait_for_work();
    } else {
      static_cast<void>(close_queued(SIZE_MAX));  // on failure the entry is quarantined, and the sink told
    }
  }
}

// Runs the reaper's thread. The thread may be in the driver when the cache ends, and is then the last that needs the
// engine.
void engine::run_reaper(engine* home) noexcept {
  engine* last = nullptr;
  {
    os::scoped_lock guard(home->mutex_);
    home->reap();
    home->reaper_runs_ = false;
    home->waiting_.notify(home);
    last = home->leave_if_last();
  }
  destroy(last);
}

}  // namespace pinfold::detail
