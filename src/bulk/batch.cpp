// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_cancellation.hpp"

#include <pinfold/detail/batch.hpp>
#include <pinfold/detail/pages.hpp>
#include <pinfold/lease_base.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace pinfold::detail {

namespace {

bool may_join(const range& grown, const range& next, const piece_limits& limits) noexcept {
  if (next.begin > grown.end || !limits.fits({grown.begin, std::max(grown.end, next.end)})) return false;
  return next.begin < grown.end || same_mapping(grown.end - 1, next.begin);
}

std::uintptr_t end_of_piece(const range& left, std::size_t each, const piece_limits& limits) noexcept {
  if (left.size() <= each && limits.fits(left)) return left.end;
  const auto before = left.begin % limits.granularity;  // what rounding adds in front
  const auto most = limits.max_bytes > before ? limits.max_bytes - before : limits.max_bytes;
  const auto end = left.begin + std::min({each, most, left.size()});
  const auto whole_pages = end - end % limits.granularity;
  return whole_pages > left.begin ? whole_pages : end;
}

/// One call of `acquire_all`: live entries are hit at once; free threads take the other requests in groups, and the
/// first error stops all threads.
class batch_run {
 public:
  batch_run(engine* on, std::span<const request> what, std::size_t together)
      : on_(on), together_(together), held_(what.size()) {
    missing_.reserve(what.size());  // all the room from the start: nothing may fail once a pin is held
    number_.reserve(what.size());
    granted_.reserve(what.size());
    for (std::size_t i = 0; i < what.size(); ++i) {
      held_[i] = look_up(on_, what[i]);
      if (held_[i].held != 0) continue;
      missing_.push_back(what[i]);
      number_.push_back(i);
    }
    granted_.resize(missing_.size());
    done_ = what.size() - missing_.size();
  }
  batch_run(const batch_run&) = delete;
  batch_run& operator=(const batch_run&) = delete;

  /// Gives back what `outcome` did not hand over: an exception may come between.
  ~batch_run() {
    for (const auto& one : held_) static_cast<void>(lease_base(one));  // a failed close stays with the cache
    for (const auto& one : granted_)
      if (one) static_cast<void>(lease_base(*one));
  }

  /// Returns how many groups there are to take.
  [[nodiscard]] std::size_t groups() const noexcept { return (missing_.size() + together_ - 1) / together_; }

  void work(const batch_progress& progress) noexcept {
    for (;;) {
      const auto first = next_.fetch_add(together_);
      if (first >= missing_.size() || stopped_.load()) return;
      const auto count = std::min(together_, missing_.size() - first);
      const auto some = std::span(granted_).subspan(first, count);
      acquire_group(on_, std::span(missing_).subspan(first, count), some);
      if (std::any_of(some.begin(), some.end(), [](const auto& one) { return !one; })) stopped_.store(true);
      const auto done = done_.fetch_add(count) + count;
      if (progress && !told(progress, done)) return stopped_.store(true);
    }
  }

  // Reports the end when all threads are done: other threads may have finished groups since the caller's thread last
  // reported.
  void tell_the_end(const batch_progress& progress) noexcept {
    if (progress && !stopped_.load() && told_ != held_.size()) static_cast<void>(told(progress, held_.size()));
  }

  result<std::vector<grant>> outcome() noexcept {
    std::optional<error> first = untold_;
    for (std::size_t i = 0; i < granted_.size(); ++i)
      if (!granted_[i] && !first) first = granted_[i].error();
    if (first) return tl::unexpected(*first);
    for (std::size_t i = 0; i < granted_.size(); ++i) held_[number_[i]] = *std::exchange(granted_[i], {});
    return std::exchange(held_, {});
  }

 private:
  // Calls the callback. Returns false when the callback throws, as the exception must not leak leases.
  bool told(const batch_progress& progress, std::size_t done) noexcept try {
    told_ = done;
    progress(done, held_.size());
    return true;
  } catch (...) {
    untold_ = error{errc::invalid_argument, native_kind::none, 0, "batch_options::progress threw an exception"};
    return false;
  }

  engine* on_;
  std::size_t together_;
  std::vector<grant> held_;  // by the index of the request
  std::vector<request> missing_;
  std::vector<std::size_t> number_;  // the index of each missing request
  std::vector<result<grant>> granted_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<bool> stopped_{false};
  std::optional<error> untold_;  // written by the caller's thread only
  std::size_t told_ = 0;         // likewise
};

// Starts another thread for the run. Returns false if that fails: fewer threads are slower, not wrong.
bool started(std::vector<std::jthread>& threads, batch_run& run) noexcept try {
  threads.emplace_back([&run] { run.work(nullptr); });
  return true;
} catch (...) {  // std::system_error, or std::bad_alloc
  return false;
}

}  // namespace

std::vector<range> cut(const range& whole, std::size_t each, const piece_limits& limits) {
  std::vector<range> pieces;
  for (range left = whole; !left.empty(); left.begin = pieces.back().end)
    pieces.push_back({left.begin, end_of_piece(left, each, limits)});
  return pieces;
}

batch_plan merge_ranges(std::span<const range> asked, const piece_limits& limits) {
  std::vector<std::uint32_t> order(asked.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    return asked[a].begin != asked[b].begin ? asked[a].begin < asked[b].begin : asked[a].end > asked[b].end;
  });
  batch_plan plan;
  plan.member.resize(asked.size());
  for (const auto number : order) {
    const range& one = asked[number];
    if (!plan.merged.empty() && may_join(plan.merged.back(), one, limits)) {
      plan.merged.back().end = std::max(plan.merged.back().end, one.end);
    } else {
      plan.merged.push_back(one);
    }
    plan.member[number] = static_cast<std::uint32_t>(plan.merged.size() - 1);
  }
  return plan;
}

result<std::vector<grant>> acquire_all(engine* on, std::span<const request> what, std::size_t together,
                                       unsigned workers, const batch_progress& progress) {
  const no_cancellation guard;
  batch_run run(on, what, together);
  const auto helpers = std::min<std::size_t>(workers, run.groups());
  {
    std::vector<std::jthread> threads;
    threads.reserve(helpers);
    for (std::size_t i = 1; i < helpers && started(threads, run); ++i) {
    }
    run.work(progress);
  }
  run.tell_the_end(progress);
  return run.outcome();
}

}  // namespace pinfold::detail
