// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/connection.hpp"

#include "fd_passing/client.hpp"
#include "fd_passing/process.hpp"
#include "fd_passing/wire.hpp"
#include "os/no_fork.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>

namespace pinfold::fd_passing {

namespace {

/// A server with too many connections may close a new connection before it answers.
constexpr int fresh_attempts = 3;

constexpr std::chrono::milliseconds poll_interval{1000};  // the program may close a descriptor just before a poll
constexpr std::chrono::milliseconds retry_after{50};

bool is_one_of(const error& failure, errc first, errc second) noexcept { return failure == first || failure == second; }

/// Whether to try the exporter's socket after its process could not be opened. A link remembers that failure, so a
/// transient failure, such as an interrupted read, ends the call instead.
bool socket_may_do(transport via, const error& failure) noexcept {
  const bool may_pass = failure == errc::out_of_resources || (failure == errc::driver_error && failure.native != 0);
  if (via == transport::pidfd || may_pass) return false;
  return via == transport::scm || failure != errc::peer_gone;
}

}  // namespace

result<file> connection::fetch(transport via, const fd_request& what) noexcept {
  if (via == transport::scm) return fetch_by_socket(what);
  auto direct = fetch_by_pidfd(what);
  if (direct || via == transport::pidfd) return direct;
  if (!is_one_of(direct.error(), errc::not_permitted, errc::unsupported)) return direct;
  auto served = fetch_by_socket(what);
  // If the exporter does not serve, the error of `pidfd` gives the better advice.
  return !served && served.error() == errc::unsupported ? std::move(direct) : std::move(served);
}

result<file> connection::fetch_by_pidfd(const fd_request& what) noexcept {
  if (!process_) return tl::unexpected(reason_);
  if (is_another_file(what.from.pid, what.descriptor, what.file)) {
    if (has_ended(process_)) return fail(errc::peer_gone, "the exporting process has ended");
    return fail(errc::stale_handle, "the exporter has freed this buffer and reused its descriptor");
  }
  return duplicate_from(process_, what.descriptor);
}

result<file> connection::fetch_by_socket(const fd_request& what) noexcept {
  if (owes_answer())
    return fail_errno(errc::timed_out, ETIMEDOUT, "the exporter has not answered an earlier request yet");
  while (file idle = take_idle()) {
    auto got = ask_and_keep(std::move(idle), what.serial);
    if (got || got.error() != errc::closed) return got;
  }
  error last{};
  for (int attempt = 0; attempt < fresh_attempts; ++attempt) {
    auto fresh = connect(what.from);
    auto got = fresh ? ask_and_keep(std::move(*fresh), what.serial) : result<file>(tl::unexpected(fresh.error()));
    if (got || got.error() != errc::closed) return got;
    last = got.error();
    if (!fresh) break;
  }
  return tl::unexpected(no_answer(last));
}

/// Connects to the exporter's socket. A forked child keeps its dead parent's socket alive, but no thread accepts there.
/// If the process could not be opened, the pid of the socket's peer distinguishes such a socket from an exporter in
/// another PID namespace. Such a socket's queue may be full of connections that their importers have closed.
result<file> connection::connect(const exporter_id& from) noexcept {
  const bool gone = !process_ && reason_ == errc::peer_gone;
  const auto longest = gone ? gone_patience : answer_timeout;
  const auto patience = late_.load(std::memory_order_relaxed) ? late_patience : longest;
  auto fresh = connect_to(from, socket_purpose::descriptors, patience);
  late_.store(!fresh && fresh.error() == errc::timed_out, std::memory_order_relaxed);
  if (!fresh || !gone) return fresh;
  const auto exporter = os::other_end(*fresh);
  if (exporter && exporter->pid == from.pid) return tl::unexpected(reason_);
  return fresh;
}

result<file> connection::ask_and_keep(file socket, std::uint64_t serial) noexcept {
  auto got = ask(socket, process_, serial);
  if (got || got.error() == errc::stale_handle) {
    keep(std::move(socket));
  } else if (got.error() == errc::timed_out) {
    keep_unanswered(std::move(socket));
  }
  return got;
}

bool connection::owes_answer() noexcept {
  file answered;  // closed without the mutex
  const std::scoped_lock hold(mutex_);
  if (!unanswered_.still_there() || os::readable_within(unanswered_, std::chrono::milliseconds{0}))
    answered = std::move(unanswered_);
  return static_cast<bool>(unanswered_);
}

void connection::keep_unanswered(file socket) noexcept {
  const std::scoped_lock hold(mutex_);
  if (!unanswered_) unanswered_ = std::move(socket);
}

error connection::no_answer(const error& seen) const noexcept {
  if (!process_ || os::readable_within(process_, death_takes)) {
    return {errc::peer_gone, seen.kind, seen.native, "the exporting process has ended"};
  }
  return {errc::unsupported, seen.kind, seen.native, "the exporter does not serve its buffers over a socket"};
}

file connection::take_idle() noexcept {
  const std::scoped_lock hold(mutex_);
  while (idle_count_ > 0) {
    file idle = std::move(idle_[--idle_count_]);
    if (idle.still_there()) return idle;
  }
  return {};
}

void connection::keep(file socket) noexcept {
  const std::scoped_lock hold(mutex_);
  if (idle_count_ < most_idle) idle_[idle_count_++] = std::move(socket);
}

result<std::shared_ptr<connection>> connection_table::find_or_make(transport via, const exporter_id& to) noexcept try {
  if (auto known = find(to)) return known;
  auto process = open_process(to);
  if (!process && !socket_may_do(via, process.error())) return tl::unexpected(process.error());
  slots made;
  auto made_now = process ? std::make_shared<connection>(std::move(*process), error{})
                          : std::make_shared<connection>(file(), process.error());
  made.emplace(to, slot{std::move(made_now), 0});
  return add(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

/// Whether the program has closed the pidfd (closefrom(3)).
bool connection_table::has_lost_process(const slot& one) noexcept {
  const auto& process = one.to->process();
  return process && !process.still_there();
}

std::shared_ptr<connection> connection_table::find(const exporter_id& to) noexcept {
  slots inherited;
  std::shared_ptr<connection> lost;
  const std::scoped_lock hold(mutex_);
  if (process_ !=
      os::this_process()) {  // a forked child would read its parent's answers, and leave its own to the parent
    inherited.swap(slots_);
    process_ = os::this_process();
  }
  const auto found = slots_.find(to);
  if (found == slots_.end()) return nullptr;
  if (has_lost_process(found->second)) {
    lost = std::move(found->second.to);
    auto without = slots_.extract(found);
    if (watches_ && process_ == maker_) forgotten_.insert(std::move(without));
    return nullptr;
  }
  found->second.last_use = ++uses_;
  return found->second.to;
}

/// Adds a link and returns the link in the table: if another thread has added a link first, that one.
std::shared_ptr<connection> connection_table::add(slots made) noexcept {
  const exporter_id to = made.begin()->first;
  slots::node_type removed;
  const std::scoped_lock hold(mutex_);
  if (slots_.size() >= most) {
    const auto use = [&](const auto& one) { return std::pair(in_use_ && in_use_(one.first), one.second.last_use); };
    removed = slots_.extract(std::ranges::min_element(slots_, {}, use));
  }
  slots_.merge(made);
  slot& there = slots_.find(to)->second;
  there.last_use = ++uses_;
  if (ended_ && there.to->process()) watch_locked();
  return there.to;
}

/// A forked child cannot use the caches of its parent, so nothing is watched there.
void connection_table::watch_locked() noexcept {
  if (process_ != maker_) return;
  if (!watches_) watches_ = thread_.start("pinfold-peers", wait_for_ends, this).has_value();
  thread_.wake();
}

/// `ended_` may destroy the table, also on this thread.
void connection_table::wait_for_ends(void* self) noexcept {
  auto& table = *static_cast<connection_table*>(self);
  const std::weak_ptr<connection_table> alive = table.weak_from_this();
  std::vector<pollfd> watched;
  while (table.thread_.goes_on()) {
    table.wait_for_end(watched);
    auto kept = alive.lock();
    if (!kept) return;
    kept->forget_ended();
    kept->watch_again();
    kept.reset();
    if (alive.expired()) return;
  }
}

void connection_table::wait_for_end(std::vector<pollfd>& watched) noexcept {
  auto timeout = poll_interval;
  const auto watch = [&](const file& one) {
    if (one.still_there()) watched.push_back({.fd = one.number(), .events = POLLIN, .revents = 0});
  };
  watched.clear();
  try {
    const os::no_fork no_child_has_it_locked;
    const std::scoped_lock hold(mutex_);
    watch(thread_.wake_end());
    for (const auto& [id, one] : slots_)
      if (one.to->process()) watch(one.to->process());
  } catch (const std::bad_alloc&) {
    timeout = retry_after;
  }
  if (::poll(watched.data(), watched.size(), static_cast<int>(timeout.count())) < 0 && errno != EINTR)
    ::poll(nullptr, 0, static_cast<int>(retry_after.count()));  // no memory, or a low limit of descriptors
}

/// Also forgets links whose pidfd the program has closed: `watch_again` makes them again.
void connection_table::forget_ended() noexcept {
  slots removed;
  slots lost;
  {
    const os::no_fork no_child_has_it_locked;
    const std::scoped_lock hold(mutex_);
    for (auto next = slots_.begin(); next != slots_.end();) {
      const auto one = next++;
      if (has_lost_process(one->second)) {
        lost.insert(slots_.extract(one));
      } else if (const auto& process = one->second.to->process(); process && has_ended(process)) {
        removed.insert(slots_.extract(one));
      }
    }
  }
  for (auto& [id, one] : lost) one.to.reset();
  add_again(std::move(lost));
  for (const auto& [id, one] : removed) ended_(id);
}

/// Returns a link, or null if there is no memory for it.
std::shared_ptr<connection> connection_table::made_of(file process) noexcept try {
  return std::make_shared<connection>(std::move(process), error{});
} catch (const std::bad_alloc&) {
  return nullptr;
}

/// Makes links again that `forget_all` has closed, but not while a retry may need the descriptors. An exporter whose
/// process has ended meanwhile has no link, and is reported like those with one.
void connection_table::watch_again() noexcept {
  slots missing;
  {
    const os::no_fork no_child_has_it_locked;
    const std::scoped_lock hold(mutex_);
    std::erase_if(forgotten_, [&](const auto& one) { return !in_use_(one.first); });
    const auto now = std::chrono::steady_clock::now();
    if (forgotten_.empty() || slots_.size() >= most || now < watch_again_at_) return;
    watch_again_at_ = now + poll_interval;
    missing.swap(forgotten_);
  }
  slots ended;
  for (auto next = missing.begin(); next != missing.end();) {
    const auto one = next++;
    auto process = open_process(one->first);
    if (process) one->second.to = made_of(std::move(*process));
    if (!process && process.error() == errc::peer_gone) ended.insert(missing.extract(one));
  }
  add_again(std::move(missing));
  for (const auto& [id, one] : ended) ended_(id);
}

void connection_table::add_again(slots made) noexcept {
  const os::no_fork no_child_has_it_locked;
  const std::scoped_lock hold(mutex_);
  for (auto next = made.begin(); next != made.end();) {
    const auto one = next++;
    if (one->second.to && slots_.size() < most && !slots_.contains(one->first)) slots_.insert(made.extract(one));
  }
  std::erase_if(made, [&](const auto& one) { return slots_.contains(one.first); });
  for (auto& [id, one] : made) one.to.reset();
  forgotten_.merge(made);
}

void connection_table::forget(const exporter_id& to) noexcept {
  slots::node_type removed;
  const std::scoped_lock hold(mutex_);
  const auto found = slots_.find(to);
  if (found == slots_.end()) return;
  const file& process = found->second.to->process();
  if (watches_ && process_ == maker_ && process && process.still_there()) return;  // the thread forgets the link
  removed = slots_.extract(found);
}

bool connection_table::forget_all() noexcept {
  slots removed;
  {
    const std::scoped_lock hold(mutex_);
    removed.swap(slots_);
  }
  const bool any = !removed.empty();
  std::erase_if(removed, [](const auto& one) { return !one.second.to->process(); });
  for (auto& [id, one] : removed) one.to.reset();
  const std::scoped_lock hold(mutex_);
  if (watches_ && process_ == maker_) forgotten_.merge(removed);
  watch_again_at_ = std::chrono::steady_clock::now() + poll_interval;
  return any;
}

}  // namespace pinfold::fd_passing
