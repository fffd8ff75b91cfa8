// SPDX-License-Identifier: BSD-3-Clause
// Beginning, waiting, telling, ending.
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

// Who asked for an audit is told where there is none.
std::string with_audit(std::string monitors, std::uint32_t one_in) {
  if (one_in != 0 && !monitors.empty())
    monitors += core::page_audit::possible(one_in) ? ", audited" : ", not audited: no CAP_SYS_ADMIN";
  return monitors;
}

}  // namespace

engine* engine::make(const driver& table, cache_options options, watched_by monitors) {
  core::gate* own = core::take_gate();
  if (own == nullptr) throw std::bad_alloc();
  try {
    auto* made = new engine(*own, table, std::move(options), std::move(monitors));
    core::scoped_lock guard(own->guard);
    return own->home = made;
  } catch (...) {
    core::give_back(own);
    throw;
  }
}

// From now on a late release finds nobody.
void engine::leave_gate() noexcept {
  gate_.guard.says_held();
  gate_.home = nullptr;
}

void engine::destroy(engine* ended) noexcept {
  if (ended == nullptr) return;
  core::gate* own = &ended->gate_;
  delete ended;
  core::give_back(own);
}

engine::engine(core::gate& own, const driver& table, cache_options options, watched_by monitors)
    : hits_(table.token_bytes > 0),
      hits_before_(ledger::hits(number_)),
      finds_before_(ledger::finds(number_)),
      token_offset_(token_offset_in(table)),
      driver_(table),
      options_(sensible(std::move(options))),
      board_(watch::board::here()),
      process_(own.process),
      watched_(table.token_bytes > 0 ? nullptr : &watch::watched_memory::here()),
      monitors_(std::move(monitors.set)),
      failures_before_(monitors_ ? monitors_->failures() : 0),
      changes_told_(monitors_ ? monitors_->changes() : 0),
      hints_(std::move(monitors.hints)),
      keeps_(monitors.keeps),
      monitors_text_(with_audit(std::move(monitors.text), options_.audit_one_in)),
      gate_(own),
      mutex_(own.guard),
      budget_(options_.max_bytes, options_.max_count),
      pool_(own, table.token_bytes > 0),
      cursor_(board_.generation().load()) {
  const bool imports = table.token_bytes > 0;
  view_.generation = imports ? &board_.process_word() : &board_.generation();
  view_.kernels = monitors_ ? &monitors_->kernel_generation() : &watch::monitor_set::nothing_counted();
  view_.seen = imports ? own.process : cursor_ + (monitors_ ? monitors_->drain() : 0);
  view_.number = number_;
  view_.number_in_word = number_ << record::cache_shift;
  view_.salt = std::uintptr_t{number_} * 677;
  static_cast<void>(core::barrier_in_use());  // before the first pin
  if (const auto one_in = core::page_audit::possible(options_.audit_one_in); one_in && !imports)
    audit_.emplace(*one_in);
  hits_need_the_mutex_ =
      !options_.retain || options_.entry_statistics || options_.trace_requests || number_ == 0 || audit_.has_value();
  if (options_.reaper) reaper_ = std::thread([this] { reap(); });
}

// Only what could not be closed is left.
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
  if (!options_.sink) return;
  what.cache = options_.name.c_str();
  try {
    options_.sink(what);
  } catch (...) {  // whatever a sink throws must not reach a destructor; it is counted
    counters_.add(core::shared_counter::sink_failures);
  }
}

void engine::reap() noexcept {
  core::scoped_lock guard(mutex_);
  while (!reaper_stop_) {
    if (queued_.empty()) {
      wait_for_work();
    } else {
      static_cast<void>(close_queued(SIZE_MAX));  // a failure is kept in quarantine and told to the sink
    }
  }
}

void engine::stop_reaper() noexcept {
  if (!reaper_.joinable()) return;
  {
    core::scoped_lock guard(mutex_);
    reaper_stop_ = true;
  }
  reaper_wake_.notify_one();
  reaper_.join();
}

void engine::wait_for_leases() noexcept {
  const auto until = std::chrono::steady_clock::now() + options_.drain_timeout;
  while (leases_out() > 0 && wait_for(this, until)) {
  }
  // A release on another thread may be at its close: that thread still needs the driver and this engine.
  while (closes_in_flight_ > 0) wait_for(this, std::chrono::steady_clock::now() + std::chrono::hours{1});
}

// From now on every request and every release takes the mutex.
void engine::refuse_hits() noexcept {
  closed_ = true;
  index_.for_each([](entry& one) { stop_hits(one); });
  static_cast<void>(core::order_everywhere());
}

// The time-out passed: the registrations are to be closed under their leases, which read as closed from now on.
void engine::revoke_leased() noexcept {
  index_.for_each([this](entry& one) {
    mutex_is_held();
    if (one.pins() <= 0) return;
    one.hot()->set(record::revoked);
    if (one.now() == entry_state::draining && !one.queued) {
      held_.remove(&one);
      queue_close(one);
    }
    if (one.now() != entry_state::live) return;
    if (reusable(one)) reusable_.remove(&one);
    one.become(entry_state::evicting);
    marked_.push_back(&one);
  });
}

void engine::say_goodbye() noexcept {
  if (!options_.statistics_at_exit) return;
  try {
    const std::string line = describe(read_statistics());
    if (!options_.sink) std::fprintf(stderr, "%s: %s\n", options_.name.c_str(), line.c_str());
    event what{event_kind::statistics, severity::info};
    what.text = line.c_str();
    tell(what);
  } catch (...) {  // no memory for a line of text is no reason to end the program
    counters_.add(core::shared_counter::sink_failures);
  }
}

void engine::shut_down(engine* ending) noexcept {
  ending->stop_reaper();
  ending->unpersist({}, {0, UINTPTR_MAX});  // only local memory can be persistent
  bool last = false;
  std::uint64_t out = 0;
  {
    core::scoped_lock guard(ending->mutex_);
    ending->refuse_hits();
    ending->wait_for_leases();
    out = ending->leases_out();
    ending->revoke_leased();
    // What fails is told to the sink: there is nobody else to tell, and nobody who could try again.
    if (!ending->close_unheld()) static_cast<void>(ending->retry_quarantined());
  }
  if (out > 0) {
    event left{event_kind::leases_outlive_cache, severity::failure};
    left.leases = out;
    ending->tell(left);
  }
  ending->say_goodbye();
  {
    core::scoped_lock guard(ending->mutex_);
    ending->orphaned_ = true;
    last = ending->leases_out() == 0;
    if (last) ending->leave_gate();
  }
  if (last) destroy(ending);
}

}  // namespace pinfold::detail
