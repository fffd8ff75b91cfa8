// SPDX-License-Identifier: BSD-3-Clause
#include "release/retirements.hpp"

#include "os/check.hpp"
#include "os/deadline.hpp"
#include "os/no_cancellation.hpp"
#include "os/wait_for_wake.hpp"
#include "release/steps.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace pinfold::release {

namespace {

constexpr auto no_memory = "no memory for the exporter's own records";
constexpr auto inherited = "the exporter belongs to the parent process";

}  // namespace

retirements::retirements(std::shared_ptr<release_registry> registry, std::size_t limbo_bytes) noexcept
    : registry_(std::move(registry)), limbo_bytes_(limbo_bytes) {}

result<std::shared_ptr<retired>> retirements::begin(std::uint64_t serial, std::size_t bytes,
                                                    std::chrono::milliseconds timeout, free_call& free) noexcept try {
  auto made = std::make_shared<retired>();
  made->serial = serial;
  made->bytes = bytes;
  made->deadline = os::deadline_in(timeout, std::chrono::days{1});
  list node{made};
  const std::scoped_lock guard(mutex_);
  if (abandoned_) return fail(errc::closed, "the exporter has ended");
  if (auto begun = registry_->begin_retire(serial, timeout); !begun) return tl::unexpected(begun.error());
  made->free = std::move(free);
  pending_.splice(pending_.end(), node);
  ++counts_.retirements;
  return made;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<retire_report> retirements::report_locked(const retired& what) const noexcept try {
  if (what.done) return what.last;
  const bool taken = what.last.state != retire_state::asking;
  auto made = taken ? result<retire_report>(what.last) : registry_->report(what.serial);
  if (!made) return made;
  // Until `free` has returned, the memory exists, and an error of the driver is unknown.
  made->state = what.deadline <= steady_clock::now() ? retire_state::limbo : retire_state::asking;
  return made;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

std::size_t retirements::limbo_locked(steady_clock::time_point now) const noexcept {
  std::size_t bytes = 0;
  for (const auto& one : pending_) bytes += one->deadline <= now ? one->bytes : 0;
  return bytes;
}

void retirements::take_locked(list& into, list::iterator what, retire_report last) noexcept {
  PINFOLD_ASSERT(!(*what)->done && last.state != retire_state::asking, "memory is freed once, for a reason");
  (*what)->last = std::move(last);
  if ((*what)->last.state == retire_state::over_budget) ++counts_.freed_over_budget;
  if ((*what)->last.state == retire_state::freed) ++counts_.freed;
  into.splice(into.end(), pending_, what);
}

// If there is no memory for a report, the next round tries again.
void retirements::take_unheld_locked(list& into) noexcept {
  if (!registry_->any_released() && !looks_again_) return;  // each message calls this, and there may be thousands
  looks_again_ = false;
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto one = next++;
    if (registry_->is_held((*one)->serial)) continue;
    if (auto seen = registry_->report((*one)->serial)) {
      seen->state = retire_state::freed;
      take_locked(into, one, std::move(*seen));
    } else {
      looks_again_ = true;
    }
  }
}

void retirements::take_over_budget_locked(list& into) noexcept {
  const auto now = steady_clock::now();
  std::size_t limbo = limbo_locked(now);
  for (auto next = pending_.begin(); next != pending_.end() && limbo > limbo_bytes_;) {
    const auto one = next++;
    if ((*one)->deadline > now || (*one)->bytes == 0) continue;  // what the program frees itself makes no room here
    auto seen = registry_->report((*one)->serial);
    if (!seen) continue;
    seen->state = seen->holders.empty() ? retire_state::freed : retire_state::over_budget;
    PINFOLD_ASSERT(limbo >= (*one)->bytes, "memory over its deadline counts as limbo");
    limbo -= (*one)->bytes;
    take_locked(into, one, std::move(*seen));
  }
}

void retirements::settle() noexcept {
  const std::scoped_lock guard(mutex_);
  const auto had = due_.size();
  take_unheld_locked(due_);  // first: it frees memory and so makes room
  take_over_budget_locked(due_);
  if (due_.size() > had) freeing_.wake();
}

result<void> retirements::start() noexcept {
  PINFOLD_ASSERT(!own_, "an exporter starts once");
  own_ = shared_from_this();
  const auto body = [](void* self) {
    const std::shared_ptr<retirements> kept = static_cast<retirements*>(self)->own_;  // `free` may end the exporter
    kept->free_until_stopped();
  };
  auto started = freeing_.start("pinfold-free", body, this);
  if (!started) own_ = nullptr;
  return started;
}

void retirements::free_until_stopped() noexcept {
  constexpr std::chrono::milliseconds poll_interval{1000};  // the program may close the descriptor just before a poll
  while (freeing_.goes_on()) {
    list taken;
    {
      const std::scoped_lock guard(mutex_);
      taken.splice(taken.end(), due_);
    }
    free_all(taken);
    if (taken.empty()) os::wait_for_wake(freeing_, poll_interval);
  }
}

void retirements::free_all(list& taken) noexcept {
  for (const auto& one : taken) {
    reach(step::exporter_freeing);
    PINFOLD_ASSERT(!one->done && one->last.state != retire_state::asking,
                   "memory is freed once, when it was taken from the list");
    registry_->forget(one->serial);
    const auto freed = one->free();
    reach(step::exporter_freed);
    one->free = nullptr;
    const std::scoped_lock guard(mutex_);
    one->last.free_failed = !freed;
    if (!freed) one->last.failure = freed.error();
    one->done = true;
    changed_->notify_all();
  }
}

std::chrono::milliseconds retirements::next_deadline(std::chrono::milliseconds most) noexcept {
  const std::scoped_lock guard(mutex_);
  const auto now = steady_clock::now();
  auto least = most;
  for (const auto& one : pending_) {
    if (one->deadline <= now) continue;
    least = std::min(least, std::chrono::ceil<std::chrono::milliseconds>(one->deadline - now));
  }
  return least;
}

void retirements::abandon() noexcept {
  freeing_.stop();
  list taken;
  {
    const std::scoped_lock guard(mutex_);
    PINFOLD_ASSERT(!abandoned_, "an exporter ends once");
    abandoned_ = true;
    own_ = nullptr;
    taken.splice(taken.end(), due_);
    while (!pending_.empty()) {
      retire_report last;
      if (auto seen = registry_->report(pending_.front()->serial)) last = std::move(*seen);
      last.state =
          last.holders.empty() && last.state == retire_state::freed ? retire_state::freed : retire_state::abandoned;
      take_locked(taken, pending_.begin(), std::move(last));
    }
  }
  free_all(taken);
}

void retirements::died(std::uint64_t peer) noexcept {
  const std::scoped_lock guard(mutex_);  // one lock for both counts, so that they are consistent
  if (registry_->died(peer) != 0) ++counts_.importers_died;
}

result<retire_report> retirements::report(const retired& what) noexcept {
  if (os::this_process() != process_) return fail(errc::unsupported, inherited);
  const std::scoped_lock guard(mutex_);
  return report_locked(what);
}

result<retire_report> retirements::wait(const retired& what, std::chrono::milliseconds timeout) noexcept {
  if (os::this_process() != process_) return fail(errc::unsupported, inherited);
  const detail::no_cancellation whole;
  const auto deadline = os::deadline_in(timeout, std::chrono::days{1});
  std::unique_lock guard(mutex_);
  changed_->wait_until(guard, deadline, [&] { return what.done; });
  return report_locked(what);
}

release_statistics retirements::statistics() noexcept {
  if (os::this_process() != process_) return {};
  const std::scoped_lock guard(mutex_);
  release_statistics made = counts_;
  const auto now = steady_clock::now();
  made.limbo_bytes = limbo_locked(now);
  made.limbo_buffers =
      static_cast<std::size_t>(std::ranges::count_if(pending_, [&](const auto& one) { return one->deadline <= now; }));
  return made;
}

}  // namespace pinfold::release

namespace pinfold {

retirement::retirement() noexcept = default;
retirement::retirement(retirement&&) noexcept = default;
retirement& retirement::operator=(retirement&&) noexcept = default;
retirement::~retirement() = default;
retirement::retirement(std::shared_ptr<release::retirements> in, std::shared_ptr<release::retired> what) noexcept
    : in_(std::move(in)), what_(std::move(what)) {}

result<retire_report> retirement::report() const noexcept {
  if (!in_) return fail(errc::closed, "the ticket is empty");
  return in_->report(*what_);
}

result<retire_report> retirement::wait(std::chrono::milliseconds timeout) const noexcept {
  if (!in_) return fail(errc::closed, "the ticket is empty");
  return in_->wait(*what_, timeout);
}

}  // namespace pinfold
