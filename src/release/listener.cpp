// SPDX-License-Identifier: BSD-3-Clause
#include "os/check.hpp"
#include "release/listener_state.hpp"

#include "fd_passing/client.hpp"
#include "fd_passing/process.hpp"
#include "os/no_cancellation.hpp"
#include "release/steps.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <span>
#include <utility>

namespace pinfold {

namespace {

using release::reach;
using release::step;

/// A dying process closes its sockets shortly before it counts as ended.
constexpr std::chrono::milliseconds death_takes{100};
/// The same on a busy machine, once the process is known to be ending.
constexpr std::chrono::milliseconds death_takes_at_most{2000};
/// Longest wait, when a listener ends, for exporters that do not read.
constexpr std::chrono::milliseconds rest_takes{1000};
constexpr std::chrono::milliseconds longest_read{100};
constexpr auto inherited_text = "the listener belongs to the parent process";
constexpr auto ended_text = "the exporting process has ended";

fd_passing::exporter_id origin_of(const release_target& what) noexcept {
  return {what.id.exporter, what.start_time, what.pid};
}

/// Polls. Sleeps briefly if that fails: no memory, or a descriptor limit below the number in use.
void poll_or_rest(std::span<pollfd> watched, std::chrono::milliseconds most) noexcept {
  constexpr std::chrono::milliseconds rest{10};
  if (::poll(watched.data(), watched.size(), static_cast<int>(most.count())) < 0 && errno != EINTR)
    ::poll(nullptr, 0, static_cast<int>(std::min(most, rest).count()));
}

/// Returns whether the exporter's process has ended, or is ending.
bool has_ended(const release_target& what) noexcept {
  const auto there = fd_passing::open_process(origin_of(what));
  if (!there) return there.error() == errc::peer_gone;
  return os::readable_within(*there, fd_passing::main_thread_ends(what.pid) ? death_takes_at_most : death_takes);
}

/// How long to wait in the queue of the exporter's socket: an ended exporter's may be full for good.
std::chrono::milliseconds patience_with(const release_target& what) noexcept {
  const auto there = fd_passing::open_process(origin_of(what));
  return there || there.error() != errc::peer_gone ? fd_passing::answer_timeout : fd_passing::gone_patience;
}

}  // namespace

release_listener::state::~state() {
  const detail::no_cancellation whole;
  if (inherited()) return;
  thread.stop();
  const auto deadline = std::chrono::steady_clock::now() + rest_takes;
  for (auto& [exporter, one] : connections) {
    send_rest(one, deadline);
    one.at.hang_up();
  }
}

void release_listener::state::send_rest(connection& to, std::chrono::steady_clock::time_point deadline) noexcept {
  for (flush(to); !to.broken && !to.unsent.empty(); flush(to)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd room{.fd = release::watchable(to.at.socket), .events = POLLOUT, .revents = 0};
    poll_or_rest({&room, 1}, left);
  }
}

void release_listener::state::note_late(std::uint64_t exporter, bool is_late) {
  constexpr std::size_t most = 256;  // a peer chooses the exporters
  const std::scoped_lock hold(mutex);
  if (!is_late) {
    late.erase(exporter);
  } else if (late.size() < most) {
    late.insert(exporter);
  }
}

/// On success, returns with the mutex locked: `drop_idle` must not drop the connection before its memory is counted.
result<void> release_listener::state::connect(std::unique_lock<std::mutex>& guard, const release_target& what) {
  PINFOLD_ASSERT(!send && !guard.owns_lock(), "only a listener with a thread has connections");
  guard.lock();
  if (const auto known = connections.find(what.id.exporter); known != connections.end() && !known->second.broken)
    return {};
  const bool is_late = late.contains(what.id.exporter);
  guard.unlock();
  const auto patience = is_late ? fd_passing::late_patience : patience_with(what);
  reach(step::importer_connecting);
  auto socket = fd_passing::connect_to(origin_of(what), fd_passing::socket_purpose::release, patience);
  note_late(what.id.exporter, !socket && socket.error() == errc::timed_out);
  if (!socket && socket.error() == errc::closed) {
    if (has_ended(what)) return fail_errno(errc::peer_gone, ESRCH, ended_text);
    return fail_errno(errc::unsupported, socket.error().native,
                      "the exporter answers no releases: it has ended, or was made without `release`");
  }
  if (!socket) return tl::unexpected(socket.error());
  std::map<std::uint64_t, connection> made;
  endpoint& at = made[what.id.exporter].at;
  at = endpoint::of(std::move(*socket));
  if (at.no_process == ESRCH)  // a forked child of the exporter has the exporter's socket
    return fail_errno(errc::peer_gone, ESRCH, ended_text);
  reach(step::importer_connected);
  guard.lock();
  // The memory of an earlier, broken connection to that exporter is invalidated first. Not by the thread alone, which
  // in a `serial` cache may wait for this opener.
  const auto cleared = [&] {
    const auto known = connections.find(what.id.exporter);
    return known == connections.end() || !known->second.broken;
  };
  const auto deadline = std::chrono::steady_clock::now() + fd_passing::answer_timeout;
  while (!cleared()) {
    guard.unlock();
    invalidate_broken();
    guard.lock();
    if (cleared() || answered->wait_for(guard, longest_read, cleared)) break;
    if (std::chrono::steady_clock::now() > deadline)
      return fail_errno(errc::timed_out, ETIMEDOUT, "another thread uses a broken connection to this exporter");
  }
  connections.merge(made);  // unless another thread was first
  thread.wake();
  return {};
}

/// Ends the connections to exporters whose memory is not open here. Such an exporter has all answers, and forgets this
/// importer. Returns whether there were any.
bool release_listener::state::drop_idle() noexcept {
  std::map<std::uint64_t, connection> dropped;  // closed without the mutex
  const std::scoped_lock guard(mutex);
  for (auto next = connections.begin(); next != connections.end();) {
    const auto one = next++;
    const auto& [exporter, to] = *one;
    const auto held = memories.lower_bound({exporter, 0});
    const bool holds = held != memories.end() && held->first.exporter == exporter;
    const bool busy = to.broken || to.has_reader || to.unanswered || !to.unsent.empty() || !to.requests.empty();
    if (holds || busy) continue;
    to.at.hang_up();
    dropped.insert(connections.extract(one));
  }
  return !dropped.empty();
}

/// Asks the exporter for admission and waits for the answer.
result<void> release_listener::state::ask(std::unique_lock<std::mutex>& guard, const release_target& what) {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the mutex");
  const std::uint64_t tag = ++last_number;
  open_wait& mine = waits[tag];
  mine.exporter = what.id.exporter;
  release_message opening{.exporter = what.id.exporter, .serial = what.id.serial, .tag = tag};
  reach(step::importer_asking);
  queue(what.id.exporter, sealed(opening));
  reach(step::importer_asked);
  const bool in_time = wait_for_answer(guard, mine);
  const open_wait seen = mine;
  waits.erase(tag);
  if (!in_time) {
    if (const auto found = connections.find(what.id.exporter); found != connections.end())
      found->second.unanswered = true;
    return fail_errno(errc::timed_out, ETIMEDOUT, "the exporter did not answer in time");
  }
  if (seen.no_memory) return fail_errno(errc::out_of_resources, ENOMEM, no_memory_text);
  if (seen.exporter_is_out)  // `out_of_resources` would make the cache close mappings, which does not help the exporter
    return fail_errno(errc::driver_error, ENOMEM, "the exporter has no memory to count the mapping");
  if (!seen.said) return tl::unexpected(unanswered(guard, what));
  if (*seen.said == release_kind::admitted) {
    reach(step::importer_admitted);
    return {};
  }
  ++counts.refused;
  return fail(errc::stale_handle, retired_text);
}

/// One of the waiting threads reads from the connection, because the listener's thread may be closing other memory, or
/// waiting for this thread to leave the driver. Returns false if no answer came in time.
bool release_listener::state::wait_for_answer(std::unique_lock<std::mutex>& guard, const open_wait& mine) {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the mutex");
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + fd_passing::answer_timeout;
  while (!mine.said && !mine.broken) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return false;
    const auto found = connections.find(mine.exporter);
    const auto can_read = [](const connection& one) {
      return !one.broken && !one.has_reader && one.requests.size() < most_before_answer;
    };
    if (found == connections.end() || !can_read(found->second)) {
      answered->wait_for(guard, std::min(left, longest_read));
    } else {
      read_once(guard, mine.exporter, found->second, std::min(left, longest_read));
    }
  }
  return true;
}

// Polls briefly: meanwhile another thread may break off the connection, and the program may get the socket's number for
// a file of its own. The thread does not erase a connection that has a reader.
void release_listener::state::read_once(std::unique_lock<std::mutex>& guard, std::uint64_t exporter, connection& from,
                                        std::chrono::milliseconds most) {
  std::array<pollfd, 2> watched{{{.fd = release::watchable(from.at.socket), .events = POLLIN, .revents = 0},
                                 {.fd = release::watchable(from.at.process), .events = POLLIN, .revents = 0}}};
  PINFOLD_ASSERT(guard.owns_lock() && !from.has_reader && !from.broken, "one thread reads from a connection");
  from.has_reader = true;
  guard.unlock();
  poll_or_rest(watched, most);
  guard.lock();
  PINFOLD_ASSERT(from.has_reader, "a connection with a reader stays");
  from.has_reader = false;
  from.broken ? thread.wake() : read(exporter, from, most_before_answer);
  answered->notify_all();
}

/// Returns why the connection ended before the exporter answered. Unlocks the mutex meanwhile.
error release_listener::state::unanswered(std::unique_lock<std::mutex>& guard, const release_target& what) noexcept {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the mutex");
  guard.unlock();
  const bool ended = has_ended(what);
  guard.lock();
  if (ended) return {errc::peer_gone, native_kind::posix, ESRCH, ended_text};
  return {errc::unsupported, native_kind::posix, ECONNRESET,
          "the exporter did not admit this importer: it is short of descriptors, serves only its user, or has ended"};
}

result<std::uint64_t> release_listener::state::begin_open(const release_target& what) {
  if (send) return begin_open_carried(what);
  std::unique_lock guard(mutex, std::defer_lock);
  if (auto connected = connect(guard, what); !connected) return tl::unexpected(connected.error());
  const auto to = connections.find(what.id.exporter);
  if (to != connections.end() && to->second.unanswered)  // the exporter may be stopped: no open waits for it again
    return fail_errno(errc::timed_out, ETIMEDOUT, "the exporter has not answered an earlier open yet");
  memory& wanted = memories[what.id];
  if (wanted.asked) {
    ++counts.refused;
    return fail(errc::stale_handle, retired_text);
  }
  const std::uint64_t number = ++last_number;
  try {
    wanted.mappings.push_back({number, what.peer, what.where});
    ++counts.mappings;
    // Counted before it asks, so that a request that arrives meanwhile is not answered with `gone`.
    if (auto admitted = ask(guard, what); !admitted) {
      drop(what.id, number);
      return tl::unexpected(admitted.error());
    }
  } catch (const std::bad_alloc&) {
    drop(what.id, number);
    throw;
  }
  return number;
}

void release_listener::state::drop(const release_id& id, std::uint64_t number) noexcept {
  const auto found = memories.find(id);
  if (found == memories.end()) return;
  memory& one = found->second;
  counts.mappings -= std::erase_if(one.mappings, [&](const auto& mapping) { return mapping.number == number; });
  if (!one.mappings.empty()) return;
  const std::uint64_t retirement = one.retirement;
  answer_room last = std::move(one.last);
  const bool say = !send || one.asked;
  PINFOLD_ASSERT(!one.asked || counts.retiring > 0, "memory that is asked for was counted");
  if (one.asked) --counts.retiring;
  memories.erase(found);
  if (!say) return;
  reach(step::importer_letting_go);
  tell(id, retirement, release_state::gone, last);
  reach(step::importer_let_go);
}

void release_listener::state::closed(const release_id& id, std::uint64_t number) noexcept {
  if (inherited()) return;
  reach(step::importer_closed);
  std::unique_lock guard(mutex);
  drop(id, number);
  static_cast<void>(send_answers(guard));  // `progress` tries again, and returns the error
}

void release_listener::state::tell(const release_id& id, std::uint64_t retirement, release_state said,
                                   answer_room& in) noexcept {
  release_message made{.exporter = id.exporter, .serial = id.serial, .retirement = retirement};
  made.kind = release_kind::answer;
  made.state = said;
  if (!send) return queue(id.exporter, sealed(made));
  PINFOLD_ASSERT(in.size() == 1, "the answer has room from before the change");
  in.front() = sealed(made);
  answers.splice(answers.end(), in);
}

// If there is no memory for the queue, the connection ends: the exporter then counts this importer until its process
// ends.
void release_listener::state::queue(std::uint64_t exporter, const release_message& message) noexcept {
  const auto found = connections.find(exporter);
  if (found == connections.end() || found->second.broken) {
    for (auto& [tag, one] : waits) one.broken = one.broken || one.exporter == exporter;
    return;
  }
  if (found->second.unsent.size() >= most_unsent) return break_off(exporter, found->second);
  try {
    found->second.unsent.push_back(message);
  } catch (const std::bad_alloc&) {
    for (auto& [tag, one] : waits) one.no_memory = one.no_memory || one.exporter == exporter;
    return break_off(exporter, found->second);
  }
  flush(found->second);
  if (found->second.broken) break_off(exporter, found->second);
  if (!found->second.unsent.empty()) thread.wake();
}

void release_listener::state::flush(connection& to) noexcept {
  while (!to.unsent.empty() && !to.broken) {
    const auto sent = to.at.send(to.unsent.front());
    if (sent == endpoint::sent::full) return;
    if (sent == endpoint::sent::broken) to.broken = true;
    to.unsent.pop_front();
  }
}

void release_listener::state::break_off(std::uint64_t exporter, connection& to) noexcept {
  to.broken = true;
  to.unsent.clear();
  to.at.hang_up();
  to.at.socket = os::file();
  for (auto& [tag, one] : waits) one.broken = one.broken || one.exporter == exporter;
  answered->notify_all();
  thread.wake();
}

result<void> release_listener::state::receive(const release_message& request) noexcept {
  if (request.kind != release_kind::request) return {};
  const release_id id = request.id();
  reach(step::importer_requested);
  answer_room answer;
  std::vector<release::mapped_range> gone;
  {
    std::unique_lock guard(mutex);
    ++counts.requests;
    const auto found = memories.find(id);
    try {
      if (send) answer.emplace_back();
      if (send) retired.add(id);
    } catch (const std::bad_alloc&) {
      return fail_errno(errc::out_of_resources, ENOMEM, no_memory_text);  // no answer: the exporter keeps the memory
    }
    if (found == memories.end()) {
      tell(id, request.retirement, release_state::unknown, answer);
      return send_answers(guard);
    }
    memory& wanted = found->second;
    if (!wanted.asked) ++counts.retiring;
    wanted.asked = true;
    wanted.retirement = request.retirement;
    mark(wanted, gone);
  }
  reach(step::importer_retiring);
  if (!gone.empty()) caches.invalidate(gone);
  invalidate_asked();
  reach(step::importer_invalidated);
  progress_caches();
  std::unique_lock guard(mutex);
  if (memories.contains(id)) {
    tell(id, request.retirement, release_state::leased, answer);
    reach(step::importer_leased);
  }
  return send_answers(guard);
}

/// Marks requested memory, whose mappings the caller invalidates. If there is no memory for the list, the next round
/// tries again.
void release_listener::state::mark(memory& asked, std::vector<release::mapped_range>& gone) noexcept {
  if (asked.marked) return;
  try {
    gone.insert(gone.end(), asked.mappings.begin(), asked.mappings.end());
    asked.marked = true;
  } catch (const std::bad_alloc&) {
    some_unmarked = true;
  }
}

// Each request calls this, and there may be thousands, so it visits `memories` only if one of them was left unmarked.
void release_listener::state::invalidate_asked() noexcept {
  std::vector<release::mapped_range> gone;
  {
    const std::scoped_lock guard(mutex);
    if (!std::exchange(some_unmarked, false)) return;
    for (auto& [id, one] : memories)
      if (one.asked) mark(one, gone);
  }
  if (!gone.empty()) caches.invalidate(gone);
}

/// Unmarks all memory, for a cache that is attached after a request.
void release_listener::state::unmark() noexcept {
  const std::scoped_lock guard(mutex);
  for (auto& [id, one] : memories) one.marked = false;
  some_unmarked = true;
  thread.wake();
}

result<void> release_listener::state::progress() noexcept {
  invalidate_asked();
  std::unique_lock guard(mutex);
  if (counts.retiring != 0) {
    guard.unlock();
    progress_caches();
    guard.lock();
  }
  return send_answers(guard);
}

void release_listener::state::progress_caches() noexcept {
  const std::size_t failed = caches.progress();
  const std::scoped_lock guard(mutex);
  counts.failed_closes += failed;
  closes_fail = failed != 0;
}

release_listener::release_listener(std::shared_ptr<state> made) noexcept : state_(std::move(made)) {}

result<release_listener> release_listener::create() noexcept try {
  auto made = std::make_shared<state>();
  const auto body = [](void* self) { static_cast<state*>(self)->loop(); };
  if (auto started = made->thread.start("pinfold-listen", body, made.get()); !started)
    return tl::unexpected(started.error());
  return release_listener(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, state::no_memory_text);
}

result<void> release_listener::receive(const release_message& message) noexcept {
  const detail::no_cancellation whole;
  if (state_->inherited()) return fail(errc::unsupported, inherited_text);
  return state_->receive(message);
}
result<void> release_listener::progress() noexcept {
  const detail::no_cancellation whole;
  if (state_->inherited()) return fail(errc::unsupported, inherited_text);
  return state_->progress();
}

release_listener_statistics release_listener::statistics() const noexcept {
  if (state_->inherited()) return {};
  const std::scoped_lock guard(state_->mutex);
  auto seen = state_->counts;
  seen.unsent = state_->answers.size();
  return seen;
}

result<std::uint64_t> release_listener::begin_open(const release_target& what) noexcept try {
  if (state_->inherited()) return fail(errc::unsupported, inherited_text);
  const detail::no_cancellation whole;
  return state_->begin_open(what);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, state::no_memory_text);
}

bool release_listener::drop_idle() noexcept {
  const detail::no_cancellation whole;
  return !state_->inherited() && state_->drop_idle();
}

void release_listener::closed(const release_id& id, std::uint64_t number) noexcept {
  const detail::no_cancellation whole;
  state_->closed(id, number);
}

struct release_listener::attachment::state {
  std::shared_ptr<release_listener::state> to;
  std::uint64_t number = 0;

  state() noexcept = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (to && !to->inherited()) to->caches.remove(number);
  }
};

release_listener::attachment::attachment() noexcept = default;
release_listener::attachment::attachment(attachment&&) noexcept = default;
release_listener::attachment& release_listener::attachment::operator=(attachment&&) noexcept = default;
release_listener::attachment::~attachment() = default;
release_listener::attachment::attachment(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}

result<release_listener::attachment> release_listener::attach(void* cache, invalidate_call on_invalidate,
                                                              progress_call on_progress) noexcept try {
  if (state_->inherited()) return fail(errc::unsupported, inherited_text);
  const detail::no_cancellation whole;
  auto made = std::make_unique<attachment::state>();
  made->number = state_->caches.add(cache, on_invalidate, on_progress);
  made->to = state_;
  state_->unmark();
  return attachment(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, state::no_memory_text);
}

}  // namespace pinfold
