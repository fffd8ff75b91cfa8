// SPDX-License-Identifier: BSD-3-Clause
#include "release/listener_state.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace pinfold {

namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 1000ms;    // the program may close descriptors just before a poll
constexpr auto progress_every = 10ms;  // while leases keep what an exporter wants back
constexpr auto retry_after = 50ms;

}  // namespace

void release_listener::state::loop() noexcept {
  std::vector<pollfd> watched;
  while (thread.goes_on()) {
    std::uint64_t next = 0;  // exporters' numbers are random, and never 0
    for (;;) {
      {
        const std::scoped_lock guard(mutex);
        const auto after = connections.upper_bound(next);
        if (after == connections.end()) break;
        next = after->first;
      }
      serve(next);
    }
    invalidate_ended();
    static_cast<void>(progress());
    wait(watched);
  }
}

/// Reads what the exporter sent.
void release_listener::state::serve(std::uint64_t exporter) noexcept {
  for (;;) {
    release_message message;
    {
      const std::scoped_lock guard(mutex);
      const auto found = connections.find(exporter);
      if (found == connections.end() || found->second.broken) return;
      connection& from = found->second;
      flush(from);
      const bool ended = from.at.process_ended();
      const auto got = from.at.receive(message);
      if (got == endpoint::received::broken || from.broken || (ended && got == endpoint::received::none))
        return break_off(exporter, from);
      if (got == endpoint::received::none) return;
      if (const auto waiting = waits.find(message.tag);
          waiting != waits.end() && message.exporter == exporter &&
          (message.kind == release_kind::admitted || message.kind == release_kind::refused)) {
        waiting->second.said = message.kind;
        waiting->second.no_memory = message.kind == release_kind::refused && message.state == release_state::unknown;
        answered->notify_all();
      }
    }
    if (message.exporter == exporter) static_cast<void>(receive(message));
  }
}

/// Invalidates what ended exporters had: their handles are worth nothing any more.
void release_listener::state::invalidate_ended() noexcept {
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
    std::erase_if(connections, [](const auto& one) { return one.second.broken; });
    answered->notify_all();
  }
  if (gone.empty()) return;
  caches.invalidate(gone);
  progress_caches();
}

void release_listener::state::wait(std::vector<pollfd>& watched) noexcept {
  auto timeout = look_every;
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
