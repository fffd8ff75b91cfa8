// SPDX-License-Identifier: BSD-3-Clause
// One lease on local memory of any size.
#include "c/large.hpp"

#include "c/request.hpp"
#include "c/structure.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <span>

std::unique_ptr<pinfold_large> pinfold_large::with_room(std::size_t count) {
  auto made = std::make_unique<pinfold_large>();
  made->pieces.reserve(count);
  return made;
}

void pinfold_large::take(std::vector<pinfold::detail::held_part> parts) noexcept {
  for (auto& one : parts) pieces.push_back({one.where, piece_lease(std::move(one.held))});
}

std::size_t pinfold_large::first_behind(std::uintptr_t address) const noexcept {
  const auto found = std::upper_bound(pieces.begin(), pieces.end(), address,
                                      [](std::uintptr_t wanted, const piece& one) { return wanted < one.where.end; });
  return static_cast<std::size_t>(found - pieces.begin());
}

namespace pinfold::c {

namespace {

result<void> takes_pieces(const pinfold_cache* cache) noexcept {
  if (auto right = may_wait(cache, kind::local); !right) return right;
  if (cache->behind.still_is == nullptr) return {};
  return fail(errc::invalid_argument, "a registrar with still_is takes no pieces of memory");
}

result<std::vector<range>> nonempty_ranges(const pinfold_range* given, std::size_t count) {
  if (count == 0 || given == nullptr) return fail(errc::invalid_argument, "there are no ranges");
  if (count > UINT32_MAX) return fail(errc::too_large, "there are too many ranges");
  std::vector<range> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto one = range::of(given[i].base, given[i].bytes);
    if (!one) return tl::unexpected(one.error());
    all.push_back(*one);
  }
  return all;
}

result<pieces_asked> read_options(const pinfold_large_options* given) noexcept {
  pinfold_large_options known{};
  if (given != nullptr && !read(given, known))
    return fail(errc::invalid_argument, "the options have a wrong size or unknown members");
  const bool has_file = known.flags == PINFOLD_FILE;
  if ((known.flags != 0 && !has_file) || (has_file && known.file < 0))
    return fail(errc::invalid_argument, "the options have an unknown flag, or a negative descriptor");
  return pieces_asked{
      known.piece_bytes, known.workers, has_file ? known.file : -1, known.argument, background_order::as_given,
      known.progress,    known.self};
}

int write_piece(const pinfold_large& of, std::size_t number, pinfold_range* where, pinfold_lease* lease) noexcept {
  const auto& one = of.pieces[number];
  if (where != nullptr) *where = {one.where.begin, one.where.size()};
  if (lease != nullptr) *lease = one.lease.as_c();
  return PINFOLD_OK;
}

}  // namespace

result<detail::background_plan> planned(const pinfold_cache* cache, const pinfold_range* ranges, std::size_t count,
                                        std::uint32_t access, const pieces_asked& how) {
  if (auto right = takes_pieces(cache); !right) return tl::unexpected(right.error());
  const auto all = nonempty_ranges(ranges, count);
  if (!all) return tl::unexpected(all.error());
  const range& first = all->front();
  auto like = asked(*cache, reinterpret_cast<const void*>(first.begin), first.size(), access,
                    {.file = how.file, .argument = how.argument});
  if (!like) return tl::unexpected(like.error());
  const registrar_limits limits = cache->behind.limits(cache->behind.table.self);
  if (!contains_all(limits.supported, like->need))
    return fail(errc::unsupported, "the registrar cannot grant this access");
  auto plan = detail::plan_pieces(cache->on(), *all, how.piece_bytes == 0 ? usual_piece : how.piece_bytes,
                                  {limits.max_bytes, any_remote(like->need) ? 1 : limits.granularity}, how.order);
  if (!plan) return plan;
  plan->like = *like;
  plan->workers = how.workers == 0 ? 4 : how.workers;
  plan->pace = how.pace;
  if (how.progress != nullptr)
    plan->progress = [call = how.progress, self = how.self](std::size_t done, std::size_t total) {
      call(self, done, total);
    };
  return plan;
}

}  // namespace pinfold::c

extern "C" {

int pinfold_acquire_large(pinfold_cache* cache, const void* address, size_t bytes, uint32_t access,
                          const pinfold_large_options* options, pinfold_large** lease) {
  using namespace pinfold;
  if (lease == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the lease");
  *lease = nullptr;
  return c::guarded([&]() -> result<void> {
    const auto how = c::read_options(options);
    if (!how) return tl::unexpected(how.error());
    const pinfold_range whole{reinterpret_cast<std::uintptr_t>(address), bytes};
    auto plan = c::planned(cache, &whole, 1, access, *how);
    if (!plan) return tl::unexpected(plan.error());
    auto parts = detail::acquire_pieces(cache->on(), *std::move(plan));
    if (!parts) return tl::unexpected(parts.error());
    auto made = pinfold_large::with_room(parts->size());
    made->take(*std::move(parts));
    *lease = made.release();
    return {};
  });
}

int pinfold_large_release(pinfold_large* lease) {
  using namespace pinfold;
  const detail::no_cancellation guard;
  const std::unique_ptr<pinfold_large> freed(lease);
  result<void> first;
  if (freed == nullptr) return PINFOLD_OK;
  for (auto& one : freed->pieces)
    if (auto closed = one.lease.release(); !closed && first) first = closed;
  return c::as_code(first);
}

size_t pinfold_large_pieces(const pinfold_large* lease) { return lease == nullptr ? 0 : lease->pieces.size(); }

int pinfold_large_piece(const pinfold_large* lease, size_t number, pinfold_range* where, pinfold_lease* piece) {
  using namespace pinfold;
  if (lease == nullptr || number >= lease->pieces.size())
    return c::refuse(errc::invalid_argument, "the lease has no such piece");
  return c::write_piece(*lease, number, where, piece);
}

int pinfold_large_at(const pinfold_large* lease, const void* address, pinfold_range* where, pinfold_lease* piece) {
  using namespace pinfold;
  if (lease == nullptr) return c::refuse(errc::invalid_argument, "the lease is null");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const auto number = lease->first_behind(wanted);
  if (number == lease->pieces.size() || wanted < lease->pieces[number].where.begin)
    return c::refuse(errc::invalid_range, "no piece contains the address");
  return c::write_piece(*lease, number, where, piece);
}

int pinfold_large_list(const pinfold_large* lease, const void* address, size_t bytes, pinfold_part* parts, size_t room,
                       size_t* count) {
  using namespace pinfold;
  if (lease == nullptr || count == nullptr || (parts == nullptr && room > 0))
    return c::refuse(errc::invalid_argument, "the lease is null, or there is no place for the parts");
  *count = 0;
  const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (!wanted) return c::refuse(wanted.error());
  const auto first = lease->first_behind(wanted->begin);
  auto from = wanted->begin;
  for (auto number = first; from < wanted->end; from = lease->pieces[number++].where.end) {
    if (number == lease->pieces.size() || from < lease->pieces[number].where.begin)
      return c::refuse(errc::invalid_range, "the lease does not cover all of the range");
    if (lease->pieces[number].lease.closed()) return c::refuse(errc::closed, "the cache of the lease was destroyed");
  }
  from = wanted->begin;
  for (auto number = first; from < wanted->end; ++number, ++*count) {
    const auto& one = lease->pieces[number];
    const auto end = std::min(wanted->end, one.where.end);
    if (*count < room)
      parts[*count] = {reinterpret_cast<void*>(from), end - from, pinfold_registration_of(one.lease.as_c())};
    from = end;
  }
  return PINFOLD_OK;
}

int pinfold_large_is_stale(const pinfold_large* lease) {
  if (lease == nullptr) return 0;
  return std::any_of(lease->pieces.begin(), lease->pieces.end(), [](const auto& one) { return one.lease.stale(); }) ? 1
                                                                                                                    : 0;
}

}  // extern "C"
