// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/detail/batch.hpp>
#include <pinfold/detail/hold.hpp>
#include <pinfold/detail/pages.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

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

/// One call of `acquire_all`: groups are taken by whoever is free, and the first error stops everybody.
class batch_run {
 public:
  batch_run(engine& on, std::span<const request> what, std::size_t together)
      : on_(on), what_(what), together_(together), granted_(what.size()) {
    held_.reserve(what.size());
  }

  void work(const batch_progress& progress) noexcept {
    for (;;) {
      const auto first = next_.fetch_add(together_);
      if (first >= what_.size() || stopped_.load()) return;
      const auto count = std::min(together_, what_.size() - first);
      acquire_group(on_, what_.subspan(first, count), std::span(granted_).subspan(first, count));
      const auto some = std::span(granted_).subspan(first, count);
      if (std::any_of(some.begin(), some.end(), [](const auto& one) { return !one; })) stopped_.store(true);
      const auto done = done_.fetch_add(count) + count;
      if (progress && !told(progress, done)) return stopped_.store(true);
    }
  }

  // When all threads are done: what the others did since the caller's thread last told.
  void tell_the_end(const batch_progress& progress) noexcept {
    if (progress && !stopped_.load() && told_ != what_.size()) static_cast<void>(told(progress, what_.size()));
  }

  result<std::vector<grant>> outcome() noexcept {
    std::optional<error> first = untold_;
    for (const auto& one : granted_) {
      if (!one && !first) first = one.error();
      if (one && one->held != 0) held_.push_back(*one);
    }
    if (!first) return std::move(held_);
    for (const auto& one : held_) static_cast<void>(hold(one));  // a failed close stays with the cache
    return tl::unexpected(*first);
  }

 private:
  // What a callback throws must not leave leases behind that nobody has.
  bool told(const batch_progress& progress, std::size_t done) noexcept try {
    told_ = done;
    progress(done, what_.size());
    return true;
  } catch (...) {
    untold_ = error{errc::invalid_argument, native_kind::none, 0, "batch_options::progress threw an exception"};
    return false;
  }

  engine& on_;
  std::span<const request> what_;
  std::size_t together_;
  std::vector<result<grant>> granted_;
  std::vector<grant> held_;  // room for all of them from the start: nothing may fail once something is held
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<bool> stopped_{false};
  std::optional<error> untold_;  // of the caller's thread
  std::size_t told_ = 0;         // the same
};

// Whether another thread works on it now. If not: fewer threads are slower, not wrong.
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

result<std::vector<grant>> acquire_all(engine& on, std::span<const request> what, std::size_t together,
                                       unsigned workers, const batch_progress& progress) {
  batch_run run(on, what, together);
  const auto groups = (what.size() + together - 1) / together;
  const auto helpers = std::min<std::size_t>(workers, groups);
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
