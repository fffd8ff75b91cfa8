// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd.hpp"

#include "monitors/userfaultfd_fork.hpp"
#include "monitors/userfaultfd_kernel.hpp"
#include "monitors/userfaultfd_leave.hpp"
#include "monitors/userfaultfd_maps.hpp"
#include "monitors/userfaultfd_thread.hpp"
#include "watch/leaving.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <sched.h>
#include <utility>

namespace pinfold::monitors {

namespace {

using std::chrono::steady_clock;

tl::unexpected<error> refused(int native) noexcept {
  switch (native) {
    case EBUSY: return fail_errno(errc::unsupported, native, "another userfaultfd watches this memory");
    case EPERM: return fail_errno(errc::unsupported, native, "a shared mapping of what this process may not write to");
    case ENOMEM: return fail_errno(errc::out_of_resources, native, "no room for more mappings (vm.max_map_count)");
    case EINVAL: return fail_errno(errc::unsupported, native, "the kernel cannot watch this kind of mapping");
    default: return fail_errno(errc::driver_error, native, "the kernel refused to watch the memory");
  }
}

class userfaultfd final : public watch::monitor {
 public:
  userfaultfd(watch::board& board, watch::watched_memory& watched, uffd::descriptor opened) noexcept
      : board_(board), process_(board.process()), descriptor_(opened), reader_(board, watched, opened.number) {}
  userfaultfd(const userfaultfd&) = delete;
  userfaultfd& operator=(const userfaultfd&) = delete;
  ~userfaultfd() override {
    if (here()) end();
  }

  [[nodiscard]] result<void> start() noexcept;

  [[nodiscard]] const char* name() const noexcept override { return "userfaultfd"; }
  [[nodiscard]] result<void> watch(const range& pages) noexcept override;
  void settle() noexcept override;
  [[nodiscard]] bool works() const noexcept override { return here() && !reader_.failed(); }

 private:
  // A child's board has another number, or none.
  [[nodiscard]] bool here() const noexcept { return board_.process() == process_; }
  [[nodiscard]] bool gets_quiet(std::chrono::milliseconds at_most) noexcept;
  void end() noexcept;

  static constexpr auto patience = std::chrono::milliseconds(watch::board::patience_ms);
  static constexpr auto patience_at_end = std::chrono::seconds(1);
  static constexpr int most_delays = 1000;

  watch::board& board_;
  std::uint64_t process_;
  uffd::descriptor descriptor_;
  uffd::descriptor maps_ = uffd::open_maps();
  uffd::reader reader_;
  std::atomic<int> delays_{0};  // in a row
  bool kept_ = false;
  bool started_ = false;
};

result<void> userfaultfd::start() noexcept {
  auto done = uffd::keep_from_children(descriptor_, maps_);
  kept_ = done.has_value();
  if (done) done = reader_.start();
  started_ = done.has_value();
  if (started_) watch::let_leave(uffd::leave, descriptor_.number);
  return done;
}

// Closing alone would release nobody for as long as a child has a copy that it never closed, as after a fork that the
// C library did not see.
void userfaultfd::end() noexcept {
  if (started_) {
    watch::let_leave_no_more();
    uffd::stop_watching_all(descriptor_.number, maps_, reader_.pages().bell());
    static_cast<void>(gets_quiet(patience_at_end));
    reader_.stop_reading();
  }
  descriptor_.close();
  if (started_) reader_.join();
  maps_.close();
  reader_.give_back();
  if (kept_) uffd::forget_for_children();
}

result<void> userfaultfd::watch(const range& pages) noexcept {
  if (!works()) return fail(errc::closed, "the userfaultfd monitor has failed, or is the parent process's");
  const auto under = uffd::mappings_under(maps_, pages);
  if (under.known ? !under.whole : !uffd::is_mapped(pages))
    return fail(errc::invalid_range, "memory that is not mapped");
  int native = uffd::start_watching(descriptor_.number, under.all);
  if (native != 0 && under.all != pages)  // what is around the pages may have changed since
    native = uffd::start_watching(descriptor_.number, pages);
  if (native == 0) return {};
  if (native == EBADF || native == ENOTTY) reader_.fail();  // the program closed it
  return refused(native);
}

void userfaultfd::settle() noexcept {
  if (!works()) return;
  if (uffd::traffic_on(descriptor_.number) == uffd::traffic::none || gets_quiet(patience)) {
    if (delays_.load(std::memory_order_relaxed) != 0) delays_.store(0, std::memory_order_relaxed);
    return;
  }
  board_.post_everything(watch::source::userfaultfd);
  if (delays_.fetch_add(1, std::memory_order_relaxed) >= most_delays) reader_.fail();  // a count that the kernel lost
}

bool userfaultfd::gets_quiet(std::chrono::milliseconds at_most) noexcept {
  const auto until = steady_clock::now() + at_most;
  do {
    const auto seen = uffd::traffic_on(descriptor_.number);
    if (seen == uffd::traffic::none) return true;
    if (seen == uffd::traffic::unknown) {
      reader_.fail();  // the program closed it
      return true;
    }
    ::sched_yield();
  } while (steady_clock::now() < until);
  return false;
}

}  // namespace

result<std::unique_ptr<watch::monitor>> make_userfaultfd(watch::board& board, watch::watched_memory& watched) {
  auto opened = uffd::open();
  if (!opened) return tl::unexpected(opened.error());
  std::unique_ptr<userfaultfd> made(new (std::nothrow) userfaultfd(board, watched, *opened));
  if (!made) {
    opened->close();
    return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the monitor");
  }
  if (auto started = made->start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<watch::monitor>(std::move(made));
}

}  // namespace pinfold::monitors
