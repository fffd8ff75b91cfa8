// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/session.hpp"

#include "invalidation/early_unregister.hpp"
#include "monitors/userfaultfd/fork.hpp"
#include "monitors/userfaultfd/unregister.hpp"
#include "os/check.hpp"

#include <cerrno>
#include <sched.h>

namespace pinfold::monitors::uffd {

namespace {

using std::chrono::steady_clock;

tl::unexpected<error> watch_refused(int native) noexcept {
  switch (native) {
    case EBUSY: return fail_errno(errc::unsupported, native, "another userfaultfd watches this memory");
    case EPERM:
      return fail_errno(errc::unsupported, native, "a shared mapping of a file that this process may not write");
    case ENOMEM:
      return fail_errno(errc::out_of_resources, native, "the limit on mappings is reached (vm.max_map_count)");
    case EINVAL: return fail_errno(errc::unsupported, native, "the kernel cannot watch this kind of mapping");
    default: return fail_errno(errc::driver_error, native, "the kernel refused to watch the memory");
  }
}

}  // namespace

result<void> session::start() noexcept {
  PINFOLD_ASSERT(!started_ && !kept_, "a session starts once");
  descriptor_.mark();
  auto done = keep_from_children(descriptor_, maps_);
  kept_ = done.has_value();
  if (done) done = reader_.start();
  started_ = done.has_value();
  if (!started_) return done;
  leave_for(reader_.thread_id());
  invalidation::enable_early_unregister(leave, descriptor_.number);
  return done;
}

// The monitor's thread releases all memory first. If a child keeps a copy of the descriptor open, as after a fork that
// the C library did not see, closing alone would release no caller. This thread may not have the descriptor: the
// program may have closed it, or the thread has a table of its own.
void session::end() noexcept {
  PINFOLD_ASSERT(!ended_.load(std::memory_order_relaxed), "a session ends once");
  ended_.store(true, std::memory_order_seq_cst);
  const auto until = steady_clock::now() + watching_limit_at_end;
  while (watching_.load(std::memory_order_seq_cst) != 0 && steady_clock::now() < until) ::sched_yield();
  const bool is_ours = descriptor_.is_this();  // checked while the thread that owns it exists
  left_ = !is_ours;
  if (started_) {
    invalidation::disable_early_unregister();
    reader_.stop_reading();
  }
  if (is_ours) descriptor(descriptor_).close();
  if (started_) reader_.join();
  descriptor(maps_).close();
  reader_.give_back();
  if (kept_) forget_for_children();
}

bool session::close_left() noexcept {
  PINFOLD_ASSERT(ended_.load(std::memory_order_relaxed), "a session in use leaves nothing");
  if (!left_) return false;
  left_ = !descriptor_.is_this_or_left();
  if (left_) return true;
  descriptor(descriptor_).close();
  descriptor(maps_).close();
  return false;
}

const char* session::trouble() const noexcept {
  if (ended_.load(std::memory_order_acquire)) return "the monitor has ended";
  if (reader_.failed()) return "cannot read the events of userfaultfd";
  const bool complete =
      !lost_.load(std::memory_order_acquire) && descriptor_.is_this() && (maps_.number < 0 || maps_.is_this());
  return complete ? nullptr : "the program closed the userfaultfd descriptor";
}

// `end` waits for the threads that are counted before they look at `ended_`.
result<void> session::watch(const range& pages) noexcept {
  watching_.fetch_add(1, std::memory_order_seq_cst);
  auto done = watch_counted(pages);
  watching_.fetch_sub(1, std::memory_order_release);
  return done;
}

// Memory that another session's userfaultfd watched would have no thread that reads its events: in this thread's table
// of descriptors, that session may have left the number. The same holds for a thread that was here for so long that
// `end` did not wait.
result<void> session::watch_counted(const range& pages) noexcept {
  if (has_failed()) return fail(errc::closed, "the userfaultfd monitor has failed");
  const auto under = mappings_under(maps_, pages);
  if (under.known ? !under.whole : !is_mapped(pages)) return fail(errc::invalid_range, "the memory is not mapped");
  if (!descriptor_.is_this()) {
    lose_descriptor();
    return fail(errc::closed, "the program closed the userfaultfd descriptor");
  }
  range watched = under.all;
  int native = start_watching(descriptor_.number, watched);
  if (native != 0 && watched != pages) {  // the mappings around the pages may have changed
    watched = pages;
    native = start_watching(descriptor_.number, watched);
  }
  if (native == EBADF || native == ENOTTY) lose_descriptor();
  if (native != 0) return watch_refused(native);
  if (!ended_.load(std::memory_order_seq_cst)) return {};
  if (descriptor_.is_this_or_left()) static_cast<void>(stop_watching(descriptor_.number, watched));
  return fail(errc::closed, "the userfaultfd monitor has ended");
}

void session::wait_for_events() noexcept {
  if (has_failed()) return;
  if (!descriptor_.is_this()) return lose_descriptor();
  if (traffic_on(descriptor_.number) == traffic::none || gets_quiet(quiet_limit)) {
    if (delays_.load(std::memory_order_relaxed) != 0) delays_.store(0, std::memory_order_relaxed);
    return;
  }
  event_log_.post_everything(invalidation::source::userfaultfd);
  if (delays_.fetch_add(1, std::memory_order_relaxed) >= most_delays) reader_.fail();  // the kernel lost count
}

bool session::gets_quiet(std::chrono::milliseconds at_most) noexcept {
  const auto until = steady_clock::now() + at_most;
  do {
    const auto seen = traffic_on(descriptor_.number);
    if (seen == traffic::none) return true;
    if (seen == traffic::unknown) {
      lose_descriptor();
      return true;
    }
    ::sched_yield();
  } while (steady_clock::now() < until);
  return false;
}

void session::lose_descriptor() noexcept {
  if (!lost_.exchange(true, std::memory_order_acq_rel)) event_log_.post_everything(invalidation::source::userfaultfd);
}

}  // namespace pinfold::monitors::uffd
