// SPDX-License-Identifier: BSD-3-Clause
#include "scheduler.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <unistd.h>
#include <utility>

namespace pinfold::explore {

scheduler all_threads;

namespace {

thread_local int self = -1;

constexpr std::uint32_t most_steps = 200'000;
constexpr std::uint32_t longest_run = 3'000;  // a thread that spins gives its turn up

}  // namespace

bool scheduler::has_this_thread() noexcept { return self >= 0; }

void scheduler::begin(const plan& how, report& into) noexcept {
  *this = scheduler();
  plan_ = how;
  report_ = &into;
  random_.seed(static_cast<unsigned>(how.seed ^ how.seed >> 32U) % 2147483646U + 1U);
  // As schedules have different lengths, the points lie in a length that is chosen too.
  const auto length = (how.atomics ? 32U : 16U) << random_() % 5U;
  const auto depth = how.by_priority ? random_() % (changes_.size() + 1) : 0;
  for (std::size_t i = 0; i < depth; ++i) changes_[i] = static_cast<std::uint32_t>(1 + random_() % length);
  if (how.by_priority && random_() % 4 == 0) jump_ = static_cast<std::uint32_t>(1 + random_() % length);
  self = add_thread();
  name_this_thread("main");
}

bool scheduler::end() noexcept {
  self = -1;
  return std::none_of(threads_.begin(), threads_.end(), [](const thread& each) { return each.native_known; });
}

void scheduler::name_this_thread(const char* name) noexcept {
  std::snprintf(report_->names[static_cast<std::size_t>(self)].data(), report_->names[0].size(), "%d %s", self, name);
}

int scheduler::add_thread() noexcept {
  if (count_ == static_cast<int>(most_threads)) fail("more threads than the explorer has room for");
  auto& added = threads_[static_cast<std::size_t>(count_)];
  ::sem_init(&added.turn, 0, 0);
  added.now = state::ready;
  added.priority = static_cast<std::int64_t>(random_()) + 1;
  std::snprintf(report_->names[static_cast<std::size_t>(count_)].data(), report_->names[0].size(), "%d", count_);
  return count_++;
}

void scheduler::know(int number, pthread_t native) noexcept {
  auto& known = threads_[static_cast<std::size_t>(number)];
  known.native = native;
  known.native_known = true;
}

void scheduler::enter(int number) noexcept {
  self = number;
  while (::sem_wait(&threads_[static_cast<std::size_t>(number)].turn) != 0 && errno == EINTR) {
  }
}

void scheduler::finish() noexcept {
  auto& ended = threads_[static_cast<std::size_t>(self)];
  ended.now = state::ended;
  wake(&ended, static_cast<int>(most_threads));
  const int next = pick();
  trace(next, "ended");
  self = -1;
  ::sem_post(&threads_[static_cast<std::size_t>(next)].turn);
}

void scheduler::join(pthread_t native) noexcept {
  for (int i = count_ - 1; i >= 0; --i) {  // the last one: in a child, it may have the identifier of one that is gone
    auto& known = threads_[static_cast<std::size_t>(i)];
    if (!known.native_known || ::pthread_equal(known.native, native) == 0) continue;
    point("join");
    while (known.now != state::ended) wait(&known, never, "join");
    known.native_known = false;
    return;
  }
}

void scheduler::count(const char* what) noexcept {
  if (++report_->steps > most_steps) fail("livelock: %u steps", most_steps);
  for (std::uint64_t part :
       {static_cast<std::uint64_t>(self), static_cast<std::uint64_t>(what[0]), std::uint64_t(what[1])})
    report_->hash = (report_->hash ^ part) * 0x100000001b3;
}

void scheduler::point(const char* what) noexcept {
  if (self < 0 || !armed_) return;
  count(what);
  if (!plan_.by_priority) {
    for (const auto& each : plan_.preempted)
      if (each.step == report_->steps) preempt(each, what);
    if (++run_ > longest_run) yield();
    return;
  }
  auto& mine = threads_[static_cast<std::size_t>(self)];
  for (const auto step : changes_)
    if (step == report_->steps) mine.priority = --least_;
  if (jump_ == report_->steps) static_cast<void>(pass_time());
  if (++run_ > longest_run) mine.priority = --least_;
  hand_over(pick(), what);
}

void scheduler::watched_atomic(const volatile void* at, bool writes) noexcept {
  if (self < 0) return;
  auto& known = variables_[reinterpret_cast<std::uintptr_t>(at) / 4 * 0x9e3779b97f4a7c15U >> 52U];
  if (known.at != at) known = {at, self};
  known.shared = known.shared || known.by != self;
  known.written = known.written || writes;
  if (known.shared && known.written) point("atomic");
}

void scheduler::preempt(const preemption& by, const char* what) noexcept {
  std::array<int, most_threads> others{};
  std::uint32_t found = 0;
  for (int i = 0; i < count_; ++i)
    if (i != self && threads_[static_cast<std::size_t>(i)].now == state::ready) others[found++] = i;
  if (&by == &plan_.preempted[0]) report_->others = found;
  if (found > 0) hand_over(others[by.to % found], what);
}

void scheduler::yield() noexcept {
  if (self < 0) return;
  if (armed_) count("yield");
  auto& mine = threads_[static_cast<std::size_t>(self)];
  mine.priority = --least_;
  mine.now = state::none;  // any other one
  int next = -1;
  for (int i = 0; i < count_; ++i)
    if (threads_[static_cast<std::size_t>(i)].now == state::ready && (next < 0 || goes_before(i, next))) next = i;
  mine.now = state::ready;
  if (next < 0) static_cast<void>(pass_time());
  hand_over(next < 0 ? self : next, "yield");
}

// By priority, or the next one in the order of threads.
bool scheduler::goes_before(int one, int other) const noexcept {
  if (plan_.by_priority)
    return threads_[static_cast<std::size_t>(one)].priority > threads_[static_cast<std::size_t>(other)].priority;
  const auto distance = [this](int to) { return (to - self + count_) % count_; };
  return distance(one) < distance(other);
}

int scheduler::pick() noexcept {
  for (;;) {
    int best = -1;
    for (int i = 0; i < count_; ++i)
      if (threads_[static_cast<std::size_t>(i)].now == state::ready && (best < 0 || goes_before(i, best))) best = i;
    if (best >= 0) return best;
    if (!pass_time()) fail_for_deadlock();
  }
}

// To the next deadline of a thread that waits.
bool scheduler::pass_time() noexcept {
  thread* first = nullptr;
  for (auto& each : threads_)
    if (each.now == state::waiting && each.deadline != never && (first == nullptr || each.deadline < first->deadline))
      first = &each;
  if (first == nullptr) return false;
  time_ = std::max(time_, first->deadline);
  first->now = state::ready;
  first->in_time = false;
  return true;
}

bool scheduler::wait(const void* on, std::int64_t deadline, const char* what) noexcept {
  if (armed_) count(what);
  auto& mine = threads_[static_cast<std::size_t>(self)];
  mine.now = state::waiting;
  mine.on = on;
  mine.what = what;
  mine.deadline = deadline;
  mine.in_time = true;
  mine.since = ++waits_;
  hand_over(pick(), what);
  mine.on = nullptr;
  return mine.in_time;
}

void scheduler::wake(const void* on, int most) noexcept {
  for (; most > 0; --most) {
    thread* first = nullptr;
    for (auto& each : threads_)
      if (each.now == state::waiting && each.on == on && (first == nullptr || each.since < first->since)) first = &each;
    if (first == nullptr) return;
    first->now = state::ready;
  }
}

void scheduler::hand_over(int next, const char* what) noexcept {
  if (next == self) return;
  run_ = 0;
  trace(next, what);
  ::sem_post(&threads_[static_cast<std::size_t>(next)].turn);
  enter(self);
}

void scheduler::trace(int next, const char* what) noexcept {
  const auto number = report_->turns++;
  if (!plan_.traced || number >= report_->trace.size()) return;
  auto& into = report_->trace[number];
  into = {report_->steps, static_cast<std::uint16_t>(self), static_cast<std::uint16_t>(next), time_, what, 0, {}};
  const int me = std::exchange(self, -1);  // what a backtrace locks is no scheduling point
  into.depth = ::backtrace(into.frames.data(), static_cast<int>(into.frames.size()));
  self = me;
}

void scheduler::enter_child() noexcept {
  if (self < 0) return;
  armed_ = false;
  in_child_ = true;
  for (int i = 0; i < count_; ++i)
    if (i != self) threads_[static_cast<std::size_t>(i)].now = state::none;
}

bool scheduler::has_waiter(const void* on) const noexcept {
  return std::any_of(threads_.begin(), threads_.end(), [on](const thread& each) { return each.on == on; });
}

void scheduler::fail_for_deadlock() noexcept {
  std::string text;
  for (int i = 0; i < count_; ++i)
    if (const auto& each = threads_[static_cast<std::size_t>(i)]; each.now == state::waiting)
      text += std::string(text.empty() ? "" : ", ") + report_->names[static_cast<std::size_t>(i)].data() + " in " +
              each.what;
  fail("deadlock: %s", text.c_str());
}

void scheduler::fail(const char* format, ...) noexcept {
  std::va_list values;
  va_start(values, format);
  if (report_->failure[0] == 0) {
    const auto begun =
        std::snprintf(report_->failure.data(), report_->failure.size(), in_child_ ? "in the child: " : "");
    std::vsnprintf(report_->failure.data() + begun, report_->failure.size() - std::size_t(begun), format, values);
  }
  va_end(values);
  if (self >= 0) trace(self, "failure");
  std::fflush(stdout);
  ::_exit(1);
}

void point(const char* what) noexcept { all_threads.point(what); }

void lock_word(std::uint32_t& held) noexcept {
  point("lock");
  while (held != 0) {
    if (self < 0) std::abort();  // outside of an exploration there is one thread
    all_threads.wait(&held, never, "lock");
  }
  held = 1;
  all_threads.taken();
}

void unlock_word(std::uint32_t& held) noexcept {
  held = 0;
  if (self >= 0) all_threads.wake(&held, 1);
}

}  // namespace pinfold::explore
