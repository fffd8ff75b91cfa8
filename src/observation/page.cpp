// SPDX-License-Identifier: BSD-3-Clause
#include "observation/page.hpp"

#include "invalidation/event_log.hpp"
#include "observation/clock.hpp"
#include "observation/page_file.hpp"
#include "observation/process_identity.hpp"
#include "observation/text.hpp"
#include "observation/words.hpp"
#include "os/all_signals_blocked.hpp"
#include "os/this_process.hpp"
#include "os/wait_for_wake.hpp"
#include "os/wiped_pages.hpp"

#include <pinfold/observation/counters.hpp>
#include <pinfold/version.hpp>

#include <cerrno>
#include <new>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace pinfold::observation {

namespace {

// A child of fork(2) finds it empty: the page is its parent's.
struct process_wide {
  os::mutex making;
  std::atomic<page*> made;
};
std::atomic<process_wide*> of_process{nullptr};

// Keeps the pages reachable for leak checkers, which do not read `process_wide`. A child of fork(2) inherits its
// parent's.
std::atomic<page*> last_made{nullptr};

// Runs when the library is unloaded, and when the program exits.
[[gnu::destructor]] void at_end() noexcept { page::remove_file(); }

constexpr std::uint64_t period_ns = 100'000'000;
constexpr int complete_every = 10;  // publications: counting leases reads the pins of all registrations

std::uint64_t memlock_limit() noexcept {
  rlimit found{};
  if (::getrlimit(RLIMIT_MEMLOCK, &found) != 0 || found.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return found.rlim_cur;
}

void describe_layout(page_header& to) noexcept {
  to.header_bytes = header_bytes;
  to.page_bytes = page_bytes;
  to.caches_from = caches_from;
  to.cache_bytes = cache_slot_bytes;
  to.caches = most_caches;
  to.events_from = events_from;
  to.event_bytes = sizeof(event_record);
  to.events = most_events;
  to.stacks_from = stacks_from;
  to.stack_bytes = sizeof(stack_record);
  to.stacks = most_stacks;
  to.version = page_version;
  to.magic = page_magic;
}

void describe_process(page_header& to, const mapped_file& file) noexcept {
  to.state = static_cast<std::uint32_t>(page_state::running);
  to.pid = ::getpid();
  to.user = ::geteuid();
  to.start_time = file.start_time;
  to.locked = file.locked ? 1 : 0;
  to.pid_namespace = pid_namespace();
  to.made_at = to.published_at = now_ns();
  to.made_at_realtime = now_ns(CLOCK_REALTIME);
  to.memlock_limit = memlock_limit();
  put(to.command, program_invocation_short_name);
  put(to.library, PINFOLD_VERSION);
}

}  // namespace

// Registered when the library is loaded: fork(2) runs only the handlers that were registered when it began.
const int page::forks_unwatched = ::pthread_atfork(nullptr, nullptr, in_child);

// A signal handler and a driver's call may fork, and the child may return into a miss that records itself on the page.
// The child finds memory of its own there; after _Fork(3), which runs no handlers, its parent's page.
void page::in_child() noexcept {
  const int before = errno;
  for (const page* one = last_made.load(std::memory_order_seq_cst); one != nullptr; one = one->earlier_)
    replace(one->memory_);
  errno = before;
}

page::page(std::string path, std::byte* mapped) noexcept
    : path_(std::move(path)), memory_(mapped), process_(os::this_process()) {}

result<page*> page::make() {
  if (forks_unwatched != 0)
    return fail_errno(errc::out_of_resources, forks_unwatched, "cannot keep the statistics page from children");
  auto file = make_page_file();
  if (!file) return tl::unexpected(file.error());
  auto& to = *reinterpret_cast<page_header*>(file->memory);
  describe_layout(to);
  describe_process(to, *file);
  if (auto shown = show(*file); !shown) return tl::unexpected(shown.error());
  prepare_stacks();
  invalidation::event_log::on_event.store(
      [](const range& where, invalidation::source from) noexcept {
        if (page* const mine = if_there()) mine->add_gone(where, static_cast<gone_source>(from));
      },
      std::memory_order_seq_cst);
  auto* const made = new page(std::move(file->path), file->memory);
  made->earlier_ = last_made.exchange(made, std::memory_order_seq_cst);
  return made;
}

result<page*> page::here() {
  auto* const all = os::wiped_object(of_process);
  if (all == nullptr) return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the statistics page");
  const os::all_signals_blocked no_handler;  // a handler that forks would leave the child with half a page
  os::scoped_lock guard(all->making);
  if (auto* const found = all->made.load(std::memory_order_seq_cst)) return found;
  auto made = make();
  if (made) all->made.store(*made, std::memory_order_seq_cst);
  return made;
}

page* page::if_there() noexcept {
  const auto* const all = of_process.load(std::memory_order_acquire);
  return all != nullptr ? all->made.load(std::memory_order_acquire) : nullptr;
}

// Keeps the memory of the page, for threads that write to it.
void page::remove_file() noexcept {
  page* const mine = if_there();
  if (mine == nullptr || os::this_process() != mine->process_) return;
  set(mine->header().state, static_cast<std::uint32_t>(page_state::ended));
  static_cast<void>(::unlink(mine->path_.c_str()));
}

// Prefers a slot that no cache had yet, so that readers see the last counters of caches that ended.
cache_slot* page::find_slot() noexcept {
  for (std::size_t i = 0; i < most_caches; ++i) {
    source& one = sources_[i];
    if (one.to != nullptr || one.has_memory) continue;
    one.has_memory = fill(path_, caches_from + i * cache_slot_bytes, cache_slot_bytes).has_value();
    if (one.has_memory) return one.to = &slot(i);
    break;  // no room
  }
  for (std::size_t i = 0; i < most_caches; ++i)
    if (sources_[i].to == nullptr && sources_[i].has_memory) return sources_[i].to = &slot(i);
  return nullptr;
}

cache_slot* page::take_slot() noexcept {
  os::scoped_lock guard(mutex_);
  cache_slot* const found = find_slot();
  add(header().caches_made);
  if (found == nullptr) return nullptr;
  const auto before = get(found->sequence);
  set(found->sequence, before | 1U);
  std::atomic_thread_fence(std::memory_order_release);
  auto* const words = reinterpret_cast<std::uint64_t*>(found);
  for (std::size_t i = 1; i < cache_slot_bytes / sizeof *words; ++i) set(words[i], std::uint64_t{0});
  set(found->state, static_cast<std::uint32_t>(slot_state::running));
  return found;
}

void page::give_back(cache_slot* done) noexcept {
  os::scoped_lock guard(mutex_);
  for (auto& one : sources_) {
    if (one.to != done) continue;
    one.to = nullptr;
    one.from = {};
  }
}

void page::count_unlisted(bool more) noexcept { add(header().caches_unlisted, more ? 1 : std::uint64_t(-1)); }

result<void> page::list(cache_slot& at, const counter_source& from) noexcept {
  os::scoped_lock starting(thread_mutex_);
  if (!thread_) {
    thread_.reset(new (std::nothrow) os::thread());
    running_ = thread_.get();
    const auto run = [](void* self) { static_cast<page*>(self)->loop(); };
    auto started = thread_ ? thread_->start("pinfold-stats", run, this)
                           : fail_errno(errc::out_of_resources, ENOMEM, "no memory for a thread");
    if (!started) {
      thread_.reset();
      return started;
    }
  }
  std::atomic_ref(at.sequence).store((get(at.sequence) | 1U) + 1, std::memory_order_release);
  os::scoped_lock guard(mutex_);
  for (auto& one : sources_)
    if (one.to == &at) one.from = from;
  ++listed_;
  set(header().period, period_ns);
  publish(true);
  return {};
}

void page::unlist(cache_slot& at) noexcept {
  os::scoped_lock starting(thread_mutex_);
  bool last = false;
  {
    os::scoped_lock guard(mutex_);
    publish(true);
    set(at.state, static_cast<std::uint32_t>(slot_state::ended));
    for (auto& one : sources_)
      if (one.to == &at) one.from = {};
    last = --listed_ == 0;
    if (last) set(header().period, std::uint64_t{0});
  }
  if (!last) return;
  thread_->stop();
  thread_.reset();
}

void page::publish(bool complete) noexcept {
  for (const auto& one : sources_) {
    if (one.from.read == nullptr) continue;
    const auto values = values_of(one.from.read(one.from.self, complete));
    for (std::size_t i = 0; i < counters.size(); ++i) {
      const bool leases = counters[i].field == &statistics::leases_now;
      if (complete || !leases) set(one.to->counters[i], values[i]);
    }
  }
  const auto* const log = invalidation::event_log::if_there();
  if (log != nullptr) set(header().ranges_gone, log->events());
  add(header().publications);
  set(header().published_at, now_ns());
}

void page::loop() noexcept {
  os::thread& self = *running_;
  for (int count = 1; self.goes_on(); ++count) {
    os::wait_for_wake(self, std::chrono::milliseconds(period_ns / 1'000'000));
    os::scoped_lock guard(mutex_);
    publish(count % complete_every == 0);
  }
}

}  // namespace pinfold::observation
