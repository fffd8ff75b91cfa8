// SPDX-License-Identifier: BSD-3-Clause
// Tickets for background registration.
#include "c/large.hpp"
#include "c/structure.hpp"
#include "c/timeout.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <memory>

struct pinfold_background {
  pinfold_cache* const cache;  // only compared: it may already be destroyed
  pinfold::detail::background_work work;
};

namespace pinfold::c {

namespace {

detail::pace_options pace_of(const pinfold_background_options& given) noexcept {
  return {.bytes_per_second = given.bytes_per_second,
          .prefault = static_cast<prefault_choice>(given.prefault),
          .first_piece_bytes = given.first_piece_bytes == 0 ? usual_first_piece : given.first_piece_bytes};
}

result<pieces_asked> read_options(const pinfold_background_options* given) noexcept {
  pinfold_background_options known{};
  if (given != nullptr && !read(given, known))
    return fail(errc::invalid_argument, "the options have a wrong size or unknown members");
  if (known.order > PINFOLD_ORDER_LARGEST_FIRST) return fail(errc::invalid_argument, "the order is unknown");
  if (known.prefault > PINFOLD_PREFAULT_HUGE_PAGES) return fail(errc::invalid_argument, "the prefault is unknown");
  return pieces_asked{.piece_bytes = known.piece_bytes,
                      .workers = known.workers,
                      .file = -1,
                      .argument = known.argument,
                      .order = static_cast<background_order>(known.order),
                      .progress = known.progress,
                      .self = known.self,
                      .pace = pace_of(known)};
}

// A callback of the registrar would wait for its own call.
result<void> ticket_usable(const pinfold_background* ticket) noexcept {
  if (ticket == nullptr) return fail(errc::invalid_argument, "the ticket is null");
  if (callback::of(ticket->cache)) return fail(errc::in_use_conflict, "called from a callback of the same cache");
  return {};
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_register_in_background(pinfold_cache* cache, const pinfold_range* ranges, size_t count, uint32_t access,
                                   const pinfold_background_options* options, pinfold_background** ticket) {
  using namespace pinfold;
  if (ticket == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the ticket");
  *ticket = nullptr;
  return c::guarded([&]() -> result<void> {
    const auto how = c::read_options(options);
    if (!how) return tl::unexpected(how.error());
    auto plan = c::planned(cache, ranges, count, access, *how);
    if (!plan) return tl::unexpected(plan.error());
    auto work = detail::background_work::start(cache->on(), *std::move(plan));
    if (!work) return tl::unexpected(work.error());
    *ticket = new pinfold_background{cache, *std::move(work)};
    return {};
  });
}

int pinfold_background_end(pinfold_background* ticket) {
  using namespace pinfold;
  if (ticket == nullptr) return PINFOLD_OK;
  if (auto right = c::ticket_usable(ticket); !right) return c::refuse(right.error());
  const std::unique_ptr<pinfold_background> freed(ticket);
  const auto cancelled = freed->work.cancel(cancel_policy::give_back);
  return !cancelled && cancelled.error().code == errc::closed ? PINFOLD_OK : c::as_code(cancelled);
}

int pinfold_background_progress_of(const pinfold_background* ticket, pinfold_background_progress* progress) {
  using namespace pinfold;
  if (ticket == nullptr) return c::refuse(errc::invalid_argument, "the ticket is null");
  const auto now = ticket->work.progress();
  const pinfold_background_progress known{sizeof known,    now.bytes_done,   now.bytes_total,
                                          now.pieces_done, now.pieces_total, now.running ? 1U : 0U};
  if (c::write(known, progress)) return PINFOLD_OK;
  return c::refuse(errc::invalid_argument, "there is no place for the progress, or it has a wrong size");
}

uint64_t pinfold_background_ready_end(const pinfold_background* ticket) {
  return ticket == nullptr ? 0 : ticket->work.ready_up_to();
}

int pinfold_background_is_ready(pinfold_background* ticket, const void* address, size_t bytes) {
  using namespace pinfold;
  const auto where = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  return where && c::ticket_usable(ticket) && ticket->work.ready(*where) ? 1 : 0;
}

int pinfold_background_acquire(pinfold_background* ticket, const void* address, size_t bytes, pinfold_large** lease) {
  using namespace pinfold;
  if (lease == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the lease");
  *lease = nullptr;
  return c::guarded([&]() -> result<void> {
    if (auto right = c::ticket_usable(ticket); !right) return right;
    const auto where = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!where) return tl::unexpected(where.error());
    auto parts = ticket->work.acquire(*where);
    if (!parts) return tl::unexpected(parts.error());
    auto made = pinfold_large::with_room(parts->size());
    made->take(*std::move(parts));
    *lease = made.release();
    return {};
  });
}

int pinfold_background_wait(pinfold_background* ticket, uint64_t timeout_ms) {
  using namespace pinfold;
  if (auto right = c::ticket_usable(ticket); !right) return c::refuse(right.error());
  if (timeout_ms == PINFOLD_NO_TIMEOUT) return c::as_code(ticket->work.wait({}));
  return c::as_code(ticket->work.wait(c::as_timeout(timeout_ms)));
}

int pinfold_background_wait_until_ready(pinfold_background* ticket, uint64_t end, uint64_t timeout_ms) {
  using namespace pinfold;
  if (auto right = c::ticket_usable(ticket); !right) return c::refuse(right.error());
  return c::as_code(ticket->work.wait_until_ready(end, c::as_timeout(timeout_ms)));
}

int pinfold_background_cancel(pinfold_background* ticket, uint32_t policy) {
  using namespace pinfold;
  if (auto right = c::ticket_usable(ticket); !right) return c::refuse(right.error());
  if (policy > PINFOLD_CANCEL_GIVE_BACK) return c::refuse(errc::invalid_argument, "the policy is unknown");
  return c::as_code(ticket->work.cancel(static_cast<cancel_policy>(policy)));
}

int pinfold_background_failure(const pinfold_background* ticket, pinfold_error* failure, pinfold_range* where) {
  using namespace pinfold;
  if (ticket == nullptr) return 0;
  const auto first = ticket->work.failure();
  if (!first) return 0;
  if (failure != nullptr) *failure = c::as_c(first->why);
  if (where != nullptr) *where = {first->where.begin, first->where.size()};
  return 1;
}

int pinfold_background_stale(pinfold_background* ticket, pinfold_range* pieces, size_t room, size_t* count) {
  using namespace pinfold;
  if (count == nullptr || (pieces == nullptr && room > 0))
    return c::refuse(errc::invalid_argument, "there is no place for the pieces");
  *count = 0;
  return c::guarded([&]() -> result<void> {
    if (auto right = c::ticket_usable(ticket); !right) return right;
    const auto stale = ticket->work.stale();
    if (!stale) return tl::unexpected(stale.error());
    *count = stale->size();
    for (std::size_t i = 0; i < std::min(room, stale->size()); ++i) pieces[i] = {(*stale)[i].begin, (*stale)[i].size()};
    return {};
  });
}

int pinfold_background_renew(pinfold_background* ticket) {
  using namespace pinfold;
  return c::guarded([&]() -> result<void> {
    if (auto right = c::ticket_usable(ticket); !right) return right;
    return ticket->work.renew();
  });
}

int pinfold_background_take(pinfold_background* ticket, pinfold_large** lease) {
  using namespace pinfold;
  if (lease == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the lease");
  *lease = nullptr;
  return c::guarded([&]() -> result<void> {
    if (auto right = c::ticket_usable(ticket); !right) return right;
    auto made = pinfold_large::with_room(ticket->work.progress().pieces_total);  // before the ticket is empty
    auto parts = ticket->work.take();
    if (!parts) return tl::unexpected(parts.error());
    made->take(*std::move(parts));
    *lease = made.release();
    return {};
  });
}

}  // extern "C"
