// SPDX-License-Identifier: BSD-3-Clause
#include "os/check.hpp"
#include "release/listener_state.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <new>

namespace pinfold {

namespace {

using namespace std::chrono_literals;

constexpr auto poll_interval = 1000ms;  // the program may close descriptors just before a poll
constexpr auto progress_every = 10ms;   // while leases keep requested memory
constexpr auto retry_after = 50ms;
constexpr auto reader_takes = 1ms;
constexpr int requests_a_round = 64;  // so that no exporter delays another for long
constexpr int messages_a_round = 64;

}  // namespace

void release_listener::state::loop() noexcept {
  std::vector<pollfd> watched;
  while (thread.goes_on()) {
    bool all_read = true;
    std::uint64_t next = 0;  // exporters' numbers are random, and never 0
    for (;;) {
      {
        const std::scoped_lock guard(mutex);
        const auto after = connections.upper_bound(next);
        if (after == connections.end()) break;
        next = after->first;
      }
      all_read = serve(next) && all_read;
    }
    invalidate_ended();
    static_cast<void>(progress());
    if (!all_read) wait_for_readers();
    wait(watched);
  }
}

/// Reads from the exporter, unless another thread does, and processes a round of its requests. Returns false if another
/// thread reads.
bool release_listener::state::serve(std::uint64_t exporter) noexcept {
  for (int i = 0; i < requests_a_round; ++i) {
    release_message request;
    {
      const std::scoped_lock guard(mutex);
      const auto found = connections.find(exporter);
      if (found == connections.end() || found->second.broken) return true;
      connection& from = found->second;
      if (!from.has_reader) read(exporter, from, most_requests);
      if (from.broken || from.requests.empty()) return !from.has_reader;
      request = from.requests.front();
      from.requests.pop_front();
    }
    static_cast<void>(receive(request));
  }
  thread.wake();  // there may be more
  return true;
}

/// Passes answers on at once, and keeps a round of requests for the thread, `most` at most. An exporter that sends
/// faster than the thread closes must wait, as its messages stay in the socket.
void release_listener::state::read(std::uint64_t exporter, connection& from, std::size_t most) noexcept {
  PINFOLD_ASSERT(!from.broken && !from.has_reader, "one thread reads from a connection that is not broken");
  flush(from);
  const auto had = from.requests.size();
  for (int i = 0; i < messages_a_round && from.requests.size() < most && !from.broken; ++i) {
    const bool ended = from.at.process_ended();
    release_message message;
    const auto got = from.at.receive(message);
    if (got == endpoint::received::none && !ended) break;
    if (got != endpoint::received::message) from.broken = true;
    if (got == endpoint::received::message && message.exporter == exporter) take(message, from);
  }
  if (from.broken) return break_off(exporter, from);
  if (from.requests.size() > had) thread.wake();
}

void release_listener::state::take(const release_message& message, connection& from) noexcept {
  from.unanswered = false;
  if (message.kind == release_kind::request) {
    try {
      from.requests.push_back(message);
    } catch (const std::bad_alloc&) {
      from.broken = true;  // its memory is invalidated like that of an exporter that ended
    }
    return;
  }
  if (message.kind != release_kind::admitted && message.kind != release_kind::refused) return;
  const auto waiting = waits.find(message.tag);
  if (waiting == waits.end() || waiting->second.exporter != message.exporter) return;
  waiting->second.said = message.kind;
  waiting->second.exporter_is_out = message.kind == release_kind::refused && message.state == release_state::unknown;
  answered->notify_all();
}

/// Waits: a socket that another thread reads would end each poll at once.
void release_listener::state::wait_for_readers() noexcept {
  std::unique_lock guard(mutex);
  answered->wait_for(guard, reader_takes);
}

/// Invalidates the memory of ended exporters: their handles are worthless.
void release_listener::state::invalidate_ended() noexcept {
  invalidate_broken();
  if (invalidated.exchange(false, std::memory_order_acq_rel)) progress_caches();
}

/// Removes the broken connections, and invalidates the memory of their exporters. Closes nothing, and so does not wait
/// for a driver: the thread does, in its next round.
void release_listener::state::invalidate_broken() noexcept {
  std::vector<release::mapped_range> gone;
  {
    const std::scoped_lock guard(mutex);
    for (auto& [exporter, one] : connections) {
      if (!one.broken) continue;
      try {
        for (auto at = memories.lower_bound({exporter, 0}); at != memories.end() && at->first.exporter == exporter;
             ++at)
          gone.insert(gone.end(), at->second.mappings.begin(), at->second.mappings.end());
      } catch (const std::bad_alloc&) {
        return;  // the next round tries again
      }
    }
    std::erase_if(connections, [](const auto& one) { return one.second.broken && !one.second.has_reader; });
    answered->notify_all();
  }
  if (gone.empty()) return;
  caches.invalidate(gone);
  invalidated.store(true, std::memory_order_release);
}

void release_listener::state::wait(std::vector<pollfd>& watched) noexcept {
  auto timeout = poll_interval;
  watched.clear();
  try {
    const std::scoped_lock guard(mutex);
    if (counts.retiring != 0 && !closes_fail) timeout = progress_every;
    watched.push_back({.fd = release::watchable(thread.wake_end()), .events = POLLIN, .revents = 0});
    for (const auto& [exporter, one] : connections) {
      if (one.broken) continue;
      const short events = static_cast<short>(POLLIN | (one.unsent.empty() ? 0 : POLLOUT));
      watched.push_back({.fd = release::watchable(one.at.socket), .events = events, .revents = 0});
      watched.push_back({.fd = release::watchable(one.at.process), .events = POLLIN, .revents = 0});
    }
  } catch (const std::bad_alloc&) {
    timeout = retry_after;
  }
  if (::poll(watched.data(), watched.size(), static_cast<int>(timeout.count())) < 0 && errno != EINTR)
    ::usleep(
        std::chrono::microseconds(retry_after).count());  // no memory, or a descriptor limit below the number in use
}

}  // namespace pinfold
