// SPDX-License-Identifier: BSD-3-Clause
#include "os/check.hpp"
#include "os/no_cancellation.hpp"
#include "os/worker_group.hpp"

#include <pinfold/detail/batch.hpp>
#include <pinfold/detail/pages.hpp>
#include <pinfold/lease_base.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

namespace pinfold::detail {

namespace {

bool may_join(const range& grown, const range& next, const piece_limits& limits) noexcept {
  if (next.begin > grown.end || !limits.fits({grown.begin, std::max(grown.end, next.end)})) return false;
  return next.begin < grown.end || same_mapping(grown.end - 1, next.begin);
}

std::uintptr_t end_of_piece(const range& left, std::size_t each, const piece_limits& limits) noexcept {
  if (left.size() <= each && limits.fits(left)) return left.end;
  const auto before = left.begin % limits.granularity;  // bytes that rounding adds in front
  const auto most = limits.max_bytes > before ? limits.max_bytes - before : limits.max_bytes;
  const auto end = left.begin + std::min({each, most, left.size()});
  const auto whole_pages = end - end % limits.granularity;
  return whole_pages > left.begin ? whole_pages : end;
}

bool comes_before(const range& one, const range& other) noexcept {
  return one.begin != other.begin ? one.begin < other.begin : one.end > other.end;
}

struct numbered_range {
  range where;
  std::size_t number;
};

// Sorts copies of the ranges: sorting indexes would access memory at random.
std::vector<numbered_range> in_order(std::span<const range> asked) {
  std::vector<numbered_range> all;
  all.reserve(asked.size());
  for (std::size_t number = 0; number < asked.size(); ++number) all.push_back({asked[number], number});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return comes_before(a.where, b.where); });
  return all;
}

/// One call of `acquire_all`. Hits live entries at once; threads that are free take the other requests in groups, and
/// the first error stops all threads.
class batch_run {
 public:
  batch_run(engine* on, const request& like, std::span<const range> what, std::size_t together, unsigned workers)
      : on_(on), like_(like), what_(what), together_(together), held_(what.size()) {
    PINFOLD_ASSERT(together > 0 && together <= most_in_group, "a worker's memory has room for a group");
    missing_.reserve(what.size());  // reserved first: nothing may fail once a pin is held
    request one = like;
    for (std::size_t i = 0; i < what.size(); ++i) {
      one.wanted = what[i];
      held_[i] = look_up(on_, one);
      if (held_[i].held == 0) missing_.push_back(static_cast<std::uint32_t>(i));
    }
    done_.store(what.size() - missing_.size(), std::memory_order_relaxed);
    workers_ = std::min<std::size_t>({workers, groups(), most_workers});
    parts_ = std::clamp(workers_, std::size_t{1}, most_parts);
    for (std::size_t i = 0; i < parts_; ++i) next_[i].at.store(begin_of(i), std::memory_order_relaxed);
  }
  batch_run(const batch_run&) = delete;
  batch_run& operator=(const batch_run&) = delete;

  /// Releases what `outcome` did not hand over, for example after an exception.
  ~batch_run() {
    for (const auto& one : held_) static_cast<void>(lease_base(one));  // a failed close stays with the cache
  }

  /// Returns how many threads have work.
  [[nodiscard]] std::size_t workers() const noexcept { return workers_; }

  /// Takes groups of the worker's own part, then of the parts that other workers have not finished.
  void work(std::size_t worker, const batch_progress& progress) noexcept {
    for (std::size_t i = 0; i < parts_ && !stopped_.load(std::memory_order_seq_cst); ++i)
      work_on((worker + i) % parts_, progress);
  }

  // Reports the end when all threads are done: other threads may have finished groups since the caller's thread last
  // reported.
  void tell_the_end(const batch_progress& progress) noexcept {
    if (progress && !stopped_.load(std::memory_order_seq_cst) && told_ != held_.size())
      static_cast<void>(told(progress, held_.size()));
  }

  result<std::vector<grant>> outcome() noexcept {
    if (untold_) return tl::unexpected(*untold_);
    if (const std::scoped_lock guard(failing_); failed_) return tl::unexpected(why_);
    return std::exchange(held_, {});
  }

 private:
  // Parts keep workers apart: neighbouring ranges are mostly in one shard, for whose mutex two workers would contend.
  static constexpr std::size_t most_parts = 16;
  struct alignas(64) position {
    std::atomic<std::size_t> at{0};
  };

  // One worker's buffers, constructed once for many groups.
  struct group_memory {
    std::array<request, most_in_group> asked;
    std::array<result<grant>, most_in_group> granted;
  };

  [[nodiscard]] std::size_t groups() const noexcept { return (missing_.size() + together_ - 1) / together_; }
  [[nodiscard]] std::size_t begin_of(std::size_t part) const noexcept {
    return std::min(groups() * part / parts_ * together_, missing_.size());
  }

  void work_on(std::size_t part, const batch_progress& progress) noexcept {
    const auto end = begin_of(part + 1);
    group_memory group;
    std::fill_n(group.asked.begin(), together_, like_);
    for (auto taken = together_;;) {
      const auto first = next_[part].at.fetch_add(taken, std::memory_order_seq_cst);
      if (first >= end) return;
      const auto start = std::chrono::steady_clock::now();
      for (auto next = first, last = std::min(first + taken, end); next < last; next += together_) {
        if (stopped_.load(std::memory_order_seq_cst)) return;
        acquire_some(std::span(missing_).subspan(next, std::min(together_, last - next)), group);
      }
      const auto some = std::min(taken, end - first);
      taken = after(taken, std::chrono::steady_clock::now() - start);
      const auto done = done_.fetch_add(some, std::memory_order_seq_cst) + some;
      PINFOLD_ASSERT(done <= held_.size(), "no range is acquired twice");
      if (progress && !told(progress, done)) return stopped_.store(true, std::memory_order_seq_cst);
    }
  }

  void acquire_some(std::span<const std::uint32_t> some, group_memory& in) noexcept {
    for (std::size_t i = 0; i < some.size(); ++i) in.asked[i].wanted = what_[some[i]];
    acquire_group(on_, std::span(in.asked).first(some.size()), std::span(in.granted).first(some.size()));
    for (std::size_t i = 0; i < some.size(); ++i) keep(some[i], in.granted[i]);
  }

  // Returns how many ranges the worker takes next: more after a quick step. Bounded, because workers without work wait
  // until all ranges that another worker has taken are done.
  [[nodiscard]] std::size_t after(std::size_t taken, std::chrono::nanoseconds took) const noexcept {
    constexpr std::chrono::microseconds longest{50};
    constexpr std::size_t most = 16;
    if (took < longest / 2) return std::min(2 * taken, std::max(most, together_));
    return took > longest ? std::max(taken / 2, together_) : taken;
  }

  // Keeps the grant of request `number`, or the error of the first refused request.
  void keep(std::uint32_t number, const result<grant>& granted) noexcept {
    if (granted) {
      PINFOLD_ASSERT(held_[number].held == 0, "a range is granted once");
      held_[number] = *granted;
      return;
    }
    const std::scoped_lock guard(failing_);
    if (!failed_ || number < *failed_) why_ = granted.error();
    failed_ = std::min(number, failed_.value_or(number));
    stopped_.store(true, std::memory_order_seq_cst);
  }

  // Calls the callback. Returns false if it throws, because the exception must not leak leases.
  bool told(const batch_progress& progress, std::size_t done) noexcept try {
    told_ = done;
    progress(done, held_.size());
    return true;
  } catch (...) {
    untold_ = error{errc::invalid_argument, native_kind::none, 0, "batch_options::progress threw an exception"};
    return false;
  }

  engine* on_;
  const request& like_;
  std::span<const range> what_;
  std::size_t together_;                // ranges of a group; a worker takes at least so many
  std::vector<grant> held_;             // by the index of the range; a thread writes those of its groups
  std::vector<std::uint32_t> missing_;  // the indexes of the ranges that were not hit
  std::size_t workers_ = 0;
  std::size_t parts_ = 1;
  std::array<position, most_parts> next_;  // of each part: the first of `missing_` that no worker has taken
  std::atomic<std::size_t> done_{0};
  std::atomic<bool> stopped_{false};
  std::mutex failing_;
  std::optional<std::uint32_t> failed_;  // guarded by failing_: the first range that was refused
  error why_;                            // guarded by failing_
  std::optional<error> untold_;          // written by the caller's thread only
  std::size_t told_ = 0;                 // likewise
};

}  // namespace

std::vector<range> cut(const range& whole, std::size_t each, const piece_limits& limits) {
  std::vector<range> pieces;
  for (range left = whole; !left.empty(); left.begin = pieces.back().end)
    pieces.push_back({left.begin, end_of_piece(left, each, limits)});
  return pieces;
}

batch_plan merge_ranges(std::span<const range> asked, const piece_limits& limits) {
  batch_plan plan;
  plan.merged.reserve(asked.size());
  plan.member.resize(asked.size());
  const auto add = [&](const range& one, std::size_t number) {
    if (!plan.merged.empty() && may_join(plan.merged.back(), one, limits)) {
      plan.merged.back().end = std::max(plan.merged.back().end, one.end);
    } else {
      plan.merged.push_back(one);
    }
    plan.member[number] = static_cast<std::uint32_t>(plan.merged.size() - 1);
  };
  if (std::is_sorted(asked.begin(), asked.end(), comes_before)) {  // most batches are
    for (std::size_t number = 0; number < asked.size(); ++number) add(asked[number], number);
  } else {
    for (const auto& [where, number] : in_order(asked)) add(where, number);
  }
  return plan;
}

result<std::vector<grant>> acquire_all(engine* on, const request& like, std::span<const range> what,
                                       std::size_t together, unsigned workers, const batch_progress& progress) {
  const no_cancellation guard;
  batch_run run(on, like, what, together, workers);
  {
    os::worker_group others;
    if (run.workers() > 1)
      static_cast<void>(others.start(run.workers() - 1, [&](std::size_t other) { run.work(other + 1, nullptr); }));
    run.work(0, progress);
  }
  run.tell_the_end(progress);
  return run.outcome();
}

}  // namespace pinfold::detail
