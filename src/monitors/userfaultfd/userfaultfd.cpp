// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/userfaultfd.hpp"

#include "monitors/userfaultfd/kernel.hpp"
#include "monitors/userfaultfd/session.hpp"
#include "os/check.hpp"
#include "os/no_fork.hpp"
#include "os/valgrind.hpp"

#include <atomic>
#include <cerrno>
#include <new>
#include <utility>

namespace pinfold::monitors {

namespace {

using uffd::session;

class userfaultfd_monitor final : public invalidation::monitor {
 public:
  userfaultfd_monitor(invalidation::event_log& event_log, invalidation::registered_filter& watched) noexcept
      : event_log_(event_log), watched_(watched), process_(event_log.process()) {}
  userfaultfd_monitor(const userfaultfd_monitor&) = delete;
  userfaultfd_monitor& operator=(const userfaultfd_monitor&) = delete;
  ~userfaultfd_monitor() override {
    if (here()) end();
    for (auto* each = now_.load(std::memory_order_relaxed); each != nullptr;) delete std::exchange(each, each->before);
  }

  [[nodiscard]] result<void> start() noexcept;

  [[nodiscard]] const char* name() const noexcept override { return "userfaultfd"; }
  [[nodiscard]] result<void> watch(const range& pages) noexcept override {
    if (!here()) return fail(errc::closed, "the userfaultfd monitor belongs to the parent process");
    return current().watch(pages);
  }
  void wait_for_events() noexcept override {
    if (here()) current().wait_for_events();
  }
  [[nodiscard]] bool works() const noexcept override { return here() && current().trouble() == nullptr; }
  [[nodiscard]] const char* why_not() const noexcept override {
    if (!here()) return "the monitor belongs to the parent process";
    if (const char* const refusal = refusal_.load(std::memory_order_acquire); refusal != nullptr) return refusal;
    const char* const trouble = current().trouble();
    return trouble != nullptr ? trouble : "the monitor has failed";
  }

 protected:
  bool restart() noexcept override;

 private:
  /// A session, kept until the monitor ends: a thread may still use a session that has ended.
  struct link {
    link(invalidation::event_log& event_log, invalidation::registered_filter& watched, uffd::descriptor opened,
         link* older) noexcept
        : one(event_log, watched, opened), before(older) {}
    session one;
    link* before;
  };

  void end() noexcept;

  // Returns whether this process made the monitor: a child's event log has another number, or does not exist.
  [[nodiscard]] bool here() const noexcept { return event_log_.process() == process_; }
  [[nodiscard]] session& current() const noexcept {
    link* const newest = now_.load(std::memory_order_acquire);
    PINFOLD_ASSERT(newest != nullptr, "a monitor that has started has a session");
    return newest->one;
  }

  invalidation::event_log& event_log_;
  invalidation::registered_filter& watched_;
  std::uint64_t process_;
  std::atomic<link*> now_{nullptr};            // never null once `start` succeeded
  std::atomic<const char*> refusal_{nullptr};  // why the last restart failed
  bool running_ = false;                       // started and not ended; only for the thread that starts or restarts
};

result<void> userfaultfd_monitor::start() noexcept {
  const os::no_fork until_noted;
  PINFOLD_ASSERT(!running_, "a monitor runs one session at a time");
  auto opened = uffd::open();
  if (!opened) return tl::unexpected(opened.error());
  auto* const fresh = new (std::nothrow) link(event_log_, watched_, *opened, now_.load(std::memory_order_relaxed));
  if (fresh == nullptr) {
    opened->close();
    return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the monitor");
  }
  if (auto done = fresh->one.start(); !done) {
    fresh->one.end();
    delete fresh;
    return done;
  }
  running_ = true;
  now_.store(fresh, std::memory_order_release);
  return {};
}

// Threads with tables of descriptors of their own end each other's sessions, and each leaves the descriptors in the
// other's table. So a table has those of one session at most, and `most` tables are known.
void userfaultfd_monitor::end() noexcept {
  if (std::exchange(running_, false)) current().end();
  constexpr int most = 64;
  int left = 0;
  for (auto* each = now_.load(std::memory_order_relaxed); each != nullptr && left < most; each = each->before)
    left += each->one.close_left() ? 1 : 0;
}

bool userfaultfd_monitor::restart() noexcept {
  if (!here()) return false;
  end();
  const auto done = start();
  refusal_.store(done ? nullptr : done.error().message, std::memory_order_release);
  return done.has_value();
}

}  // namespace

result<std::unique_ptr<invalidation::monitor>> make_userfaultfd(invalidation::event_log& event_log,
                                                                invalidation::registered_filter& watched) {
  if (os::under_valgrind())
    return fail(errc::unsupported,
                "valgrind runs one thread at a time: an unmap would wait for its own event for ever");
  std::unique_ptr<userfaultfd_monitor> made(new (std::nothrow) userfaultfd_monitor(event_log, watched));
  if (!made) return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the monitor");
  if (auto started = made->start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<invalidation::monitor>(std::move(made));
}

}  // namespace pinfold::monitors
