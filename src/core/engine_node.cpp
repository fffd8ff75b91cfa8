// SPDX-License-Identifier: BSD-3-Clause
// Room in the node's budget, which other processes take and give back: the steps of a request that finds none, and
// those for other processes.
#include "core/engine_room.hpp"
#include "core/node_request.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace pinfold::detail {

namespace {

// Other processes cannot notify this one: a thread that waits for room polls the account, at first often.
constexpr std::chrono::microseconds shortest_pause{100};
constexpr std::chrono::microseconds longest_pause{4000};

unsigned long long number(std::size_t bytes) noexcept { return bytes; }

}  // namespace

void engine_room::give_way(shard& in, std::size_t most) noexcept {
  PINFOLD_ASSERT(budget_.node() != nullptr, "only a part of a node's budget gives way");
  auto& node = *budget_.node();
  node.yield_spare();
  for (std::size_t closed = 0; closed < most && node.crowds_others(); ++closed)
    if (close_one_for_room(in) != looked::closed_one) return;
}

void engine_room::give_way() noexcept {
  if (budget_.node() == nullptr) return;
  shard& any = shards_[0];
  os::scoped_lock guard(any.mutex);
  give_way(any, SIZE_MAX);
}

// Asks other processes for this one's even share, and takes back the room of dead ones: only sometimes, as the request
// can still evict. Gives the shard's mutex up for the system calls.
bool engine_room::dead_gave_room(shard& in, const core::node_request& request) noexcept {
  const os::scoped_unlock free(in.mutex);
  request.node()->want_share(request.bytes());
  return request.node()->reclaim_sometimes();
}

// Closes entries for other processes if the request gives way, or takes back the room of dead ones. Returns whether the
// request should try again at once.
bool engine_room::other_processes_matter(shard& in, const core::node_request& request) noexcept {
  using refusal = core::budget::share::refusal;
  if (in.room.why() == refusal::gives_way) {
    give_way(in, closes_per_miss);
    in.room.insist();
    return true;
  }
  return in.room.why() == refusal::node_full && dead_gave_room(in, request);
}

// Takes back the room of dead processes, for a request that can evict nothing more.
bool engine_room::dead_gave_room_at_last(shard& in, const core::node_request& request) noexcept {
  const os::scoped_unlock free(in.mutex);
  request.node()->want(request.bytes());
  return request.node()->reclaim();
}

// Waits for room in this cache's budget, or in the node's. Returns false when the deadline has passed.
bool engine_room::wait_for_room(shard& in, const entry& opening, release_watch& watch, core::node_request& request,
                                const deadlines& until) noexcept {
  if (in.room.why() != core::budget::share::refusal::node_full) return wait_for_release(in, watch, until.room());
  if (std::chrono::steady_clock::now() >= until.room()) return false;
  if (request.begin_waiting()) tell_no_room(in, opening, request, event_kind::waits_for_node_budget);
  for (auto pause = shortest_pause;; pause = std::min(2 * pause, longest_pause)) {
    const auto look = std::chrono::steady_clock::now() + pause;
    if (wait_for_release(in, watch, std::min(look, until.room()))) return true;
    request.node()->want(request.bytes());
    request.note_turn();
    if (request.node()->may_fit(request.bytes())) return true;
    if (look >= until.room()) return false;
  }
}

// While another waiting request has its turn, makes room for it, and waits. That request may lack only the room of this
// cache's entries, even if this process is below its even share. In its own turn the request gives way to no other.
void engine_room::wait_for_turn(shard& in, const entry& opening, release_watch& watch, core::node_request& request,
                                const deadlines& until) noexcept {
  auto whose = request.whose_turn();
  for (; whose == node::turn::another && std::chrono::steady_clock::now() < until.room() && !in.table.ended();
       whose = request.whose_turn()) {
    if (request.begin_waiting()) tell_no_room(in, opening, request, event_kind::waits_for_node_budget);
    for (std::size_t closed = 0; closed < closes_per_miss && close_one_for_room(in) == looked::closed_one;) ++closed;
    request.node()->trim();
    static_cast<void>(
        wait_for_release(in, watch, std::min(std::chrono::steady_clock::now() + longest_pause, until.room())));
  }
  if (whose == node::turn::own) in.room.insist();
}

void engine_room::tell_refusal(shard& in, const entry& opening, core::node_request& request) noexcept {
  if (in.room.why() != core::budget::share::refusal::node_full) return;
  request.note_refusal();
  tell_no_room(in, opening, request, event_kind::refused_by_node_budget);
}

void engine_room::tell_no_room(shard& in, const entry& opening, const core::node_request& request,
                               event_kind kind) noexcept {
  if (!reporter_.has_sink()) return;
  PINFOLD_ASSERT(request.node() != nullptr, "the refusal is that of a node's budget");
  const bool waits = kind == event_kind::waits_for_node_budget;
  event what = core::reporter::about(opening, kind, waits ? severity::info : severity::warning);
  const os::scoped_unlock free(in.mutex);
  const auto& node = *request.node();
  const auto members = std::max<std::size_t>(node.members(), 1);
  const auto all = node.used_bytes();
  std::array<char, 384> text{};
  std::snprintf(text.data(), text.size(),
                "%s for %llu bytes of the node's budget %s: %llu in use by this process, %llu taken by all %llu "
                "members, maximum %llu, for this process %llu",
                waits ? "waits" : "refused", number(request.bytes()), node.name().c_str(), number(node.bytes_here()),
                number(all), number(members), number(node.max_bytes()),
                number(std::min(node.process_max(), node.max_bytes())));
  what.text = text.data();
  reporter_.tell(what);
}

}  // namespace pinfold::detail
