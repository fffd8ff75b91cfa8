// SPDX-License-Identifier: BSD-3-Clause
// Calls of the ticket's template (R65): refuse a ticket that belongs to the parent process, or was moved from.
#include "bulk/background_state.hpp"
#include "os/deadline.hpp"
#include "os/no_cancellation.hpp"

#include <utility>

namespace pinfold::detail {

result<background_work> background_work::start(engine* on, background_plan plan) {
  const no_cancellation whole;
  auto use = background_use::begin(on);
  if (!use) return tl::unexpected(use.error());
  shorten_first_piece(plan, limits_of(on).max_count);
  background_work made(background_state::make(*std::move(use), std::move(plan)));
  if (auto started = made.state_->start_workers(); !started) return tl::unexpected(started.error());
  return made;
}

result<void> background_work::usable() const noexcept {
  if (state_ == nullptr) return fail(errc::closed, "the ticket was moved or taken from");
  if (!state_->here()) return fail(errc::closed, "the ticket belongs to the parent process");
  if (state_->taken()) return fail(errc::closed, "the ticket was moved or taken from");
  return {};
}

background_progress background_work::progress() const noexcept {
  return usable() ? state_->progress() : background_progress{};
}

std::uintptr_t background_work::ready_up_to() const noexcept { return usable() ? state_->ready_up_to() : 0; }

std::optional<background_failure> background_work::failure() const noexcept {
  return usable() ? state_->failure() : std::nullopt;
}

result<void> background_work::ready(const range& where) noexcept {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->ready(where); });
}

result<std::vector<held_part>> background_work::acquire(const range& where) {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->acquire(where); });
}

result<void> background_work::wait(std::optional<std::chrono::milliseconds> timeout) noexcept {
  const no_cancellation whole;
  return usable().and_then(
      [&] { return timeout ? state_->wait(os::deadline_in(*timeout, longest_wait)) : state_->wait(std::nullopt); });
}

result<void> background_work::wait_until_ready(std::uintptr_t end, std::chrono::milliseconds timeout) noexcept {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->wait_until_ready(end, os::deadline_in(timeout, longest_wait)); });
}

result<void> background_work::cancel(cancel_policy what) noexcept {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->cancel(what); });
}

result<std::vector<range>> background_work::stale() {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->stale(); });
}

result<void> background_work::renew() {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->renew(); });
}

result<std::vector<held_part>> background_work::take() {
  const no_cancellation whole;
  return usable().and_then([&] { return state_->take(); });
}

}  // namespace pinfold::detail
