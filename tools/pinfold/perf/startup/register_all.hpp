// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Registers one range in the background, and measures when which part was ready.
#pragma once

#include "cli/progress.hpp"
#include "perf/startup/startup.hpp"
#include "perf/startup/timed_registrar.hpp"

#include <pinfold/background.hpp>
#include <pinfold/cache.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tool {

/// Steps of the progress bar for each range that is registered.
inline constexpr std::size_t bar_steps = 1000;

/// The time since this object was made.
class stopwatch {
 public:
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Waits with `wait`, which takes a timeout, until it does not return `timed_out`; draws the progress meanwhile.
template <class Ticket, class Wait>
pinfold::result<void> wait_and_draw(Ticket& ticket, progress_bar& progress, std::size_t& drawn, Wait&& wait) {
  for (;;) {
    auto done = wait(std::chrono::milliseconds(100));
    const auto now = ticket.progress();
    const auto part = static_cast<double>(now.bytes_done) / static_cast<double>(now.bytes_total);
    const auto steps = static_cast<std::size_t>(static_cast<double>(bar_steps) * part);
    progress.step(steps - drawn);
    drawn = steps;
    if (done || !(done.error() == pinfold::errc::timed_out)) return done;
  }
}

/// Registers the range with a cache whose registrar tells its longest call. The leases are given back.
template <class Cache>
pinfold::result<timeline> register_all(Cache& cache, const pinfold::range& memory,
                                       const pinfold::background_options& how, progress_bar& progress) {
  timeline seen;
  std::size_t drawn = 0;
  const stopwatch since;
  auto ticket =
      cache.register_in_background(reinterpret_cast<void*>(memory.begin), memory.size(), pinfold::local_access, how);
  if (!ticket) return tl::unexpected(ticket.error());
  const auto ready_at = [&](std::uintptr_t end, double& into) {
    auto done = wait_and_draw(*ticket, progress, drawn, [&](auto most) { return ticket->wait_until_ready(end, most); });
    into = since.seconds();
    return done;
  };
  if (auto done = ready_at(memory.begin + 1, seen.first); !done) return tl::unexpected(done.error());
  if (auto done = ready_at(memory.begin + memory.size() / 2, seen.half); !done) return tl::unexpected(done.error());
  if (auto done = ready_at(memory.end, seen.total); !done) return tl::unexpected(done.error());
  seen.longest = cache.backend().longest();
  return seen;
}

}  // namespace tool
