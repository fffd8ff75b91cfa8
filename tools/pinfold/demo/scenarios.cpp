// SPDX-License-Identifier: BSD-3-Clause
// The demo's second part: failures between processes, provoked with real processes. The counters have to show that each
// really happened.
#include "cli/failure.hpp"
#include "cli/report.hpp"
#include "cli/sizes.hpp"
#include "demo/stage.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <string>
#include <thread>

namespace tool {
namespace {

constexpr std::uint32_t buffer = 100;  // numbers from here on are the scenarios' own

// The exporter frees a buffer and gets the same address again: the old handle must not return the old bytes.
std::string reallocated(demo_stage& stage) {
  const auto before = stage.counters();
  const auto old = stage.provide(0, buffer, 64 * kib);
  stage.read_and_check(old);
  stage.take_back(0, buffer);
  const auto fresh = stage.provide(0, buffer, 64 * kib, old.handle.base);
  stage.read_and_check(fresh);
  const auto after = stage.counters();
  require(fresh.handle.base == old.handle.base, "the peer got the same address again");
  require(after.invalid == before.invalid + 1, "the cache detected the new handle");
  require(after.misses_invalidated == before.misses_invalidated + 1, "the cache opened the new memory");
  const auto refused = stage.cache().acquire(old.peer, old.handle, old.handle.base, old.size);
  require(!refused && refused.error() == pinfold::errc::stale_handle, "the freed buffer's handle is refused");
  stage.read_and_check(fresh);
  return fmt::format(
      "peer 0 freed 64 KiB and got the same address {:#x} again; the cache detected the new handle (invalid +1) and "
      "read the new bytes; the old handle is refused (stale_handle)",
      old.handle.base);
}

// The exporter replaces a buffer by a larger one at the same base. The scenario requests the second half first, which
// no look-up by address connects with the small mapping: only the driver knows of the conflict.
std::string regrown(demo_stage& stage) {
  const auto room = stage.provide(1, buffer, 64 * kib);
  stage.take_back(1, buffer);
  const auto small = stage.provide(1, buffer, 32 * kib, room.handle.base);
  stage.read_and_check(small);
  stage.take_back(1, buffer);
  const auto large = stage.provide(1, buffer, 64 * kib, room.handle.base);
  const auto before = stage.counters();
  stage.read_and_check(large, 32 * kib);
  stage.read_and_check(large);
  const auto after = stage.counters();
  require(after.conflicts == before.conflicts + 1, "the driver returned already_mapped, and one idle entry was closed");
  require(after.failed_opens > before.failed_opens, "the driver refused the first open");
  return fmt::format(
      "peer 1 replaced 32 KiB by 64 KiB at the same base {:#x}; the driver returned already_mapped, the cache closed "
      "the one overlapping entry (conflicts +1) and opened again",
      large.handle.base);
}

// More memory than the budget allows: idle entries make room, and the budget holds at every moment.
std::string over_budget(demo_stage& stage) {
  constexpr std::uint32_t count = 12;
  constexpr std::size_t bytes = 4096 * kib;
  const auto before = stage.counters();
  std::vector<message> messages;
  for (std::uint32_t i = 0; i < count; ++i) {
    messages.push_back(stage.provide(i % demo_stage::peer_count, buffer + 1 + i, bytes));
  }
  for (const auto& wanted : messages) stage.read_and_check(wanted);
  for (const auto& wanted : messages) stage.read_and_check(wanted);
  const auto after = stage.counters();
  require(after.evicted > before.evicted, "idle entries were closed to make room");
  require(after.misses_evicted > before.misses_evicted, "evicted entries were opened again when needed");
  require(after.peak_bytes <= demo_stage::budget, "the budget held at every moment");
  return fmt::format(
      "{} messages of 4 MiB, twice, under a budget of {}: {} idle entries closed to make room, never more "
      "than {} open",
      count, size_text(demo_stage::budget), after.evicted - before.evicted, size_text(after.peak_bytes));
}

// A peer is killed while its memory is leased here: leases stay readable, and no new ones are granted.
std::string peer_death(demo_stage& stage) {
  const std::array messages{stage.provide(1, buffer + 20, 64 * kib), stage.provide(1, buffer + 21, 1024 * kib)};
  std::array leases{stage.acquire(messages[0]), stage.acquire(messages[1])};
  const auto peer = messages[0].peer;
  const auto told = stage.told(pinfold::event_kind::invalidated_while_leased);
  require(stage.counters().leases_now == leases.size(), "two leases are held");
  stage.peer(1).kill();
  for (std::size_t i = 0; i < leases.size(); ++i) stage.check(leases.at(i), messages.at(i));
  need(stage.cache().drop_peer(peer), "cannot drop the dead peer");
  for (std::size_t i = 0; i < leases.size(); ++i) {
    require(leases.at(i).stale(), "a lease on a dead peer's memory is stale");
    stage.check(leases.at(i), messages.at(i));
    need(leases.at(i).release(), "cannot release a dead peer's memory");
  }
  require(stage.told(pinfold::event_kind::invalidated_while_leased) == told + leases.size(),
          "the event sink was notified of each lease on lost memory");
  const auto refused = stage.cache().acquire(peer, messages[0].handle, messages[0].handle.base, messages[0].size);
  require(!refused && refused.error() == pinfold::errc::peer_gone, "a dead peer's handle is refused");
  // The importer's thread, which sees the death too, may still be closing some.
  const auto any_left = [&] {
    const auto left = stage.cache().dump();
    return std::any_of(left.begin(), left.end(), [&](const auto& entry) { return entry.peer == peer; });
  };
  for (int looks = 0; looks < 1000 && any_left(); ++looks) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  require(!any_left(), "nothing of the dead peer is left open");
  return "peer 1 was killed while 2 leases were held: their memory stayed readable before and after drop_peer, and the "
         "application was notified; the peer's entries are closed, and a new acquire returns peer_gone";
}

// At the end everything that was opened is closed, and the counters add up.
std::string everything_closed(demo_stage& stage) {
  need(stage.cache().flush(), "cannot close everything");
  const auto end = stage.counters();
  require(end.opens == end.closes && end.open == 0, "every open was closed");
  require(stage.cache().backend().held() == 0, "the driver holds no mapping");
  require(end.acquires == end.hits + end.misses + end.failed_acquires, "the acquires add up");
  require(end.leases_now == 0 && end.quarantined == 0 && end.failed_closes == 0, "no lease or failed close is left");
  return fmt::format("{} opens, {} closes, nothing held", end.opens, end.closes);
}

struct scenario {
  const char* title;
  std::string (*play)(demo_stage& stage);
};

constexpr std::array<scenario, 5> scenarios{{{"stale handle", reallocated},
                                             {"already mapped", regrown},
                                             {"over budget", over_budget},
                                             {"peer death", peer_death},
                                             {"clean end", everything_closed}}};

}  // namespace

void show_scenarios(demo_stage& stage) {
  for (const auto& [title, play] : scenarios) {
    const auto story = play(stage);
    print_ok(title, story, stage.take_checked());
  }
}

}  // namespace tool
