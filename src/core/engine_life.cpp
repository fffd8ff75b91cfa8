// SPDX-License-Identifier: BSD-3-Clause
// Beginning, waiting, telling, ending.
#include "core/engine.hpp"

#include <algorithm>
#include <cstdio>

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

}  // namespace

engine::engine(const driver& table, cache_options options)
    : driver_(table),
      options_(sensible(std::move(options))),
      budget_(options_.max_bytes, options_.max_count),
      pool_(table.token_bytes) {
  if (options_.reaper) reaper_ = std::thread([this] { reap(); });
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
  what.peer = one.peer;
  what.where = one.covered;
  what.leases = one.pins;
  what.owner = one.owner_thread;
  return what;
}

void engine::tell(event what) noexcept {
  if (!options_.sink) return;
  what.cache = options_.name.c_str();
  try {
    options_.sink(what);
  } catch (...) {  // whatever a sink throws must not reach a destructor; it is counted
    counters_.add(counter::sink_failures);
  }
}

void engine::reap() noexcept {
  core::scoped_lock guard(mutex_);
  while (!reaper_stop_) {
    if (queued_.empty()) {
      reaper_wake_.wait(mutex_);
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
  while (leases_ > 0 && wait_for(this, until)) {
  }
  // A release on another thread may be at its close: that thread still needs the driver and this engine.
  while (closes_in_flight_ > 0) wait_for(this, std::chrono::steady_clock::now() + std::chrono::hours{1});
}

// The time-out passed: the registrations are closed under their leases, which read as closed from now on.
void engine::revoke_leased() noexcept {
  core::entry_list leased;
  const auto note = [&](entry& one) {
    if (one.pins > 0) leased.push_back(&one);  // what is pinned is in no other list
  };
  lookup_.for_each(note);
  hidden_.for_each(note);
  while (entry* held = leased.front()) {
    leased.remove(held);
    held->revoked.store(true, std::memory_order_release);  // before the close: the lease must not be read as usable
    held->pins = 0;
    static_cast<void>(close(*held, nullptr));  // what fails is told to the sink
  }
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
    counters_.add(counter::sink_failures);
  }
}

void engine::shut_down(engine* ending) noexcept {
  ending->stop_reaper();
  ending->unpersist({}, {0, UINTPTR_MAX});  // only local memory can be persistent
  bool last = false;
  std::uint64_t out = 0;
  {
    core::scoped_lock guard(ending->mutex_);
    ending->closed_ = true;
    ending->wait_for_leases();
    out = ending->leases_;
    ending->revoke_leased();
    static_cast<void>(ending->close_unheld());  // what fails is told to the sink: there is nobody else to tell
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
    last = ending->leases_ == 0;
  }
  if (last) delete ending;
}

}  // namespace pinfold::detail
