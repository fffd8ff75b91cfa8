// SPDX-License-Identifier: BSD-3-Clause
// Many ranges at once, and one long range piece by piece.
#include "c/cache.hpp"
#include "c/request.hpp"
#include "c/structure.hpp"

#include <pinfold/detail/batch.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

struct pinfold_chunks {
  pinfold_cache* const cache;
  std::vector<pinfold::range> ranges;
  pinfold::detail::pipeline running;
  std::size_t read = 0;
};

namespace pinfold::c {

namespace {

// A registrar that identifies memory would have to check each piece of a merged range.
result<void> takes_many(const pinfold_cache* cache) noexcept {
  if (auto right = may_wait(cache, kind::local); !right) return right;
  if (cache->behind.still_is == nullptr) return {};
  return fail(errc::invalid_argument, "a registrar with still_is takes no batches and no chunks");
}

detail::piece_limits limits_of(const pinfold_cache& cache, std::uint32_t access) noexcept {
  const registrar_limits limits = cache.behind.limits(cache.behind.table.self);
  return {limits.max_bytes, any_remote(static_cast<access_flags>(access)) ? 1 : limits.granularity};
}

result<std::vector<detail::request>> requests_for(const pinfold_cache& cache, std::span<const range> ranges,
                                                  std::uint32_t access, void* argument) {
  std::vector<detail::request> all;
  all.reserve(ranges.size());
  for (const range& one : ranges) {
    auto what = asked(cache, reinterpret_cast<const void*>(one.begin), one.size(), access, {.argument = argument});
    if (!what) return tl::unexpected(what.error());
    all.push_back(*what);
  }
  return all;
}

// The first range of a merged one gets its pin; each further range gets a pin of its own.
void hand_out(std::span<const range> ranges, std::span<const std::uint32_t> member,
              std::span<const detail::grant> granted, std::vector<bool>& given, pinfold_lease* leases) noexcept {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto held = granted[member[i]].held;
    leases[i] = {given[member[i]] ? detail::pin_again(held) : held, reinterpret_cast<void*>(ranges[i].begin)};
    given[member[i]] = true;
  }
}

result<void> acquire_batch(const pinfold_cache& cache, std::span<const range> ranges, std::uint32_t access,
                           const pinfold_batch_options& how, pinfold_lease* leases) {
  if (ranges.empty()) return {};
  const auto like = asked(cache, reinterpret_cast<const void*>(ranges[0].begin), ranges[0].size(), access,
                          {.argument = how.argument});
  if (!like) return tl::unexpected(like.error());
  const auto plan = detail::merge_ranges(ranges, limits_of(cache, access));
  const std::size_t together = cache.behind.table.open_many == nullptr ? 1 : detail::most_in_group;
  std::vector<bool> given(plan.merged.size());  // before any pin: nothing may fail between a pin and its lease
  const unsigned workers = how.workers == 0 ? 4 : how.workers;
  const auto granted = detail::acquire_all(cache.on(), *like, plan.merged, together, workers, {});
  if (!granted) return tl::unexpected(granted.error());
  hand_out(ranges, plan.member, *granted, given, leases);
  return {};
}

constexpr std::size_t usual_chunk = std::size_t{2} << 20U;

result<void> check_pieces(const range& whole, std::size_t each, const detail::piece_limits& limits) noexcept {
  if (limits.max_bytes == 0) return fail(errc::unsupported, "the registrar registers nothing");
  return detail::check_pieces(whole, each, limits);
}

result<std::vector<range>> checked_ranges(const pinfold_range* ranges, std::size_t count) {
  if (count > UINT32_MAX) return fail(errc::too_large, "a batch has fewer than 2^32 ranges");
  std::vector<range> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto one = range::of(ranges[i].base, ranges[i].bytes);
    if (!one) return tl::unexpected(one.error());
    all.push_back(*one);
  }
  return all;
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_acquire_batch(pinfold_cache* cache, const pinfold_range* ranges, size_t count, uint32_t access,
                          const pinfold_batch_options* options, pinfold_lease* leases) {
  using namespace pinfold;
  pinfold_batch_options how{};
  if (options != nullptr && !c::read(options, how))
    return c::refuse(errc::invalid_argument, "the options have a wrong size or unknown members");
  if (count > 0 && (ranges == nullptr || leases == nullptr))
    return c::refuse(errc::invalid_argument, "there are no ranges, or no place for the leases");
  for (std::size_t i = 0; i < count; ++i) leases[i] = {};
  return c::guarded([&]() -> result<void> {
    if (auto right = c::takes_many(cache); !right) return right;
    if (!c::is_access(access)) return fail(errc::invalid_argument, "the access is 0, or has unknown bits");
    const auto all = c::checked_ranges(ranges, count);
    if (!all) return tl::unexpected(all.error());
    return c::acquire_batch(*cache, *all, access, how, leases);
  });
}

int pinfold_release_batch(const pinfold_lease* leases, size_t count) {
  int first = PINFOLD_OK;
  if (leases == nullptr && count > 0) return pinfold::c::refuse(pinfold::errc::invalid_argument, "there are no leases");
  for (std::size_t i = 0; i < count; ++i) {
    const int code = pinfold_release(leases[i]);
    if (first == PINFOLD_OK) first = code;
  }
  return first;
}

int pinfold_acquire_chunks(pinfold_cache* cache, const void* address, size_t bytes, uint32_t access,
                           const pinfold_chunk_options* options, pinfold_chunks** chunks) {
  using namespace pinfold;
  if (chunks == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the stream");
  *chunks = nullptr;
  pinfold_chunk_options how{};
  if (options != nullptr && !c::read(options, how))
    return c::refuse(errc::invalid_argument, "the options have a wrong size or unknown members");
  return c::guarded([&]() -> result<void> {
    if (auto right = c::takes_many(cache); !right) return right;
    if (!c::is_access(access)) return fail(errc::invalid_argument, "the access is 0, or has unknown bits");
    const auto whole = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!whole) return tl::unexpected(whole.error());
    const auto limits = c::limits_of(*cache, access);
    const std::size_t each = how.chunk_bytes == 0 ? c::usual_chunk : how.chunk_bytes;
    if (auto right = c::check_pieces(*whole, each, limits); !right) return right;
    auto ranges = detail::cut(*whole, each, limits);
    auto wanted = c::requests_for(*cache, ranges, access, how.argument);
    if (!wanted) return tl::unexpected(wanted.error());
    detail::pipeline running(cache->on(), *std::move(wanted), how.depth == 0 ? 4 : how.depth,
                             how.workers == 0 ? 1 : how.workers);
    *chunks = new pinfold_chunks{cache, std::move(ranges), std::move(running)};
    cache->streams.fetch_add(1, std::memory_order_seq_cst);
    return {};
  });
}

int pinfold_next_chunk(pinfold_chunks* chunks, pinfold_range* where, pinfold_lease* lease) {
  using namespace pinfold;
  if (chunks == nullptr || where == nullptr || lease == nullptr)
    return c::refuse(errc::invalid_argument, "the stream is null, or there is no place for the piece");
  *lease = {};
  if (c::callback::of(chunks->cache))
    return c::refuse(errc::in_use_conflict, "called from a callback of the same cache");
  if (chunks->read == chunks->ranges.size()) return c::refuse(errc::closed, "there are no more chunks");
  const auto got = chunks->running.next();
  if (!got) {
    chunks->read = chunks->ranges.size();
    return c::refuse(got.error());
  }
  const range& piece = chunks->ranges[chunks->read++];
  *where = {piece.begin, piece.size()};
  *lease = {got->held, got->data};
  return PINFOLD_OK;
}

int pinfold_end_chunks(pinfold_chunks* chunks) {
  using namespace pinfold;
  if (chunks == nullptr) return PINFOLD_OK;
  if (c::callback::of(chunks->cache))
    return c::refuse(errc::in_use_conflict, "called from a callback of the same cache");
  const detail::no_cancellation guard;
  pinfold_cache* const cache = chunks->cache;
  delete chunks;
  cache->streams.fetch_sub(1, std::memory_order_seq_cst);
  return PINFOLD_OK;
}

}  // extern "C"
