// SPDX-License-Identifier: BSD-3-Clause
// Steps of a worker before it registers a piece: waits for its turn, moves near the memory, makes the pages present.
#include "bulk/background_state.hpp"
#include "os/check.hpp"
#include "os/prefault.hpp"

#include <algorithm>
#include <chrono>

namespace pinfold::detail {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t huge_page = std::size_t{2} << 20U;

// Bounds each wait for a turn, because the end of a cache does not wake the worker.
constexpr auto longest_nap = 50ms;

tl::unexpected<error> stopped() noexcept { return fail(errc::closed, "the registration was stopped"); }

}  // namespace

void shorten_first_piece(background_plan& plan, std::size_t most_pieces) {
  PINFOLD_ASSERT(!plan.order.empty() && plan.order.size() == plan.pieces.size(),
                 "each piece has its place in the order");
  const auto number = plan.order.front();
  const range whole = plan.pieces[number];
  const auto limit = plan.pace.first_piece_bytes;
  if (limit == 0 || whole.size() <= limit || plan.pieces.size() >= most_pieces) return;
  const auto cut = (whole.begin + limit) / huge_page * huge_page;
  if (cut <= whole.begin) return;
  plan.pieces.reserve(plan.pieces.size() + 1);
  plan.order.reserve(plan.order.size() + 1);
  plan.pieces[number].end = cut;
  plan.pieces.insert(plan.pieces.begin() + number + 1, {cut, whole.end});
  for (auto& one : plan.order) one += one > number ? 1 : 0;
  plan.order.insert(plan.order.begin() + 1, number + 1);
  plan.first_is_short = true;
}

// Returns whether other workers must wait: they would compete with the first piece for CPUs and for the driver's locks,
// with pieces that no thread waits for.
bool background_state::first_is_alone() const noexcept {
  return first_is_short_ && pieces_[order_.front()].state == piece_state::taken;
}

// Takes the next piece and its turn in one step: otherwise a later piece could get an earlier turn than a piece for
// which the caller may wait. A piece that is already registered takes no turn.
std::optional<taken_piece> background_state::take_in_turn() noexcept {
  const std::scoped_lock in_order(taking_);
  const auto number = next_piece();
  if (!number) return std::nullopt;
  taken_piece one{*number, hit_piece(*number)};
  if (one.hit.held == 0) one.turn = rate_.reserve(pieces_[*number].where.size(), rate_limit::clock::now());
  return one;
}

result<void> background_state::wait_for_turn(taken_piece& one) noexcept {
  for (;;) {
    {
      lock guard(mutex_);
      const auto now = rate_limit::clock::now();
      one.stopped = stops();
      if (one.stopped) return stopped();
      if (now >= one.turn) return {};
      changed_.wait_until(guard, std::min(one.turn, now + longest_nap));
    }
    if (background_use::call(use_).on() == nullptr) return fail(errc::closed, "the cache was destroyed");
  }
}

result<void> background_state::before_registering(taken_piece& one, os::near_memory* near) noexcept {
  if (auto turn = wait_for_turn(one); !turn) return turn;
  const range& piece = pieces_[one.number].where;
  if (near != nullptr) near->move_to(piece);
  if (pace_.prefault == prefault_choice::none) return {};
  if (pace_.prefault == prefault_choice::huge_pages) os::advise_huge_pages(piece);
  return os::prefault(piece, any_write(like_.need) ? os::page_use::write : os::page_use::read);
}

}  // namespace pinfold::detail
