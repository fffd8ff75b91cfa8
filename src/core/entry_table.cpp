// SPDX-License-Identifier: BSD-3-Clause
// Construction, and the combinations of state, flags, list and record bits that docs/understand/protocol.md allows.
#include "core/entry_table.hpp"

namespace pinfold::core {

entry_table::entry_table(const driver& table, const cache_options& options, const shared_parts& parts) noexcept
    : parts_(parts),
      token_bytes_(table.token_bytes),
      object_bytes_(table.object_bytes),
      object_offset_(table.token_bytes > 0 ? detail::imported_object_offset : detail::local_object_offset),
      token_offset_(detail::token_offset(object_offset_, table.object_bytes)),
      allows_duplicates_(table.allows_duplicates),
      retain_(options.retain),
      counts_every_hit_(options.entry_statistics) {}

// The index has only entries that could not be closed.
entry_table::~entry_table() {
  PINFOLD_ASSERT(settled() && opens_in_driver_ == 0 && closes_in_flight_ == 0, "the last thread has left the driver");
  if (parts_.registered == nullptr) return;
  for_each([this](const entry& one) { parts_.registered->remove(one.covered()); });
}

void entry_table::check([[maybe_unused]] const entry& one) const noexcept {
#if defined(PINFOLD_ASSERTIONS)
  using enum entry_state;
  using index::list_id;
  const record& hot = *one.hot();
  const auto now = one.now();
  const bool hittable = hot.is(record::hittable);
  const bool listed = hot.is(record::listed);
  const bool stale = hot.is(record::stale);
  PINFOLD_ASSERT(!hittable || now == live, "only a live entry is hittable");
  PINFOLD_ASSERT(hot.is(record::plain_release) == (hittable && one.in != list_id::leased),
                 "releases of what was set aside are finished");
  PINFOLD_ASSERT(!hittable || (!ended_ && hits_stopped_ == 0 && !one.bypass), "no entry is hittable while hits stop");
  PINFOLD_ASSERT(!listed || now == live || now == evicting, "only an entry to be handed out is in the hit table");
  PINFOLD_ASSERT(!stale || !one.findable(), "a stale entry is hidden");
  PINFOLD_ASSERT(!hot.is(record::revoked) || ended_, "only the end of the cache revokes leases");
  PINFOLD_ASSERT(!one.apart || now == draining || now == closing || now == quarantined,
                 "requests look for none of the entries that were set apart");
  PINFOLD_ASSERT(!one.in_driver || now == opening, "only an opening entry is in the driver");
  PINFOLD_ASSERT(!one.in_driver || opens_in_driver_ > 0, "the opens in the driver are counted");
  PINFOLD_ASSERT(!one.counted || !one.bypass, "a bypass is outside the budget");
  PINFOLD_ASSERT(!one.counted || (now != free && now != failed), "what is not open is not counted");
  PINFOLD_ASSERT(now == free || now == failed || one.covered().begin < one.covered().end, "an open range has bytes");
  switch (now) {
    case opening: PINFOLD_ASSERT(!one.unshared || one.doomed, "an unshared entry is hidden"); [[fallthrough]];
    case free:
    case failed:
    case closing:
      PINFOLD_ASSERT(one.in == list_id::none, "an entry that is being opened or closed is in no list");
      break;
    case live:
      PINFOLD_ASSERT(reusable(one) ? one.in == list_id::reusable || one.in == list_id::leased : one.in == list_id::none,
                     "the hand visits what is kept, except what was set aside");
      PINFOLD_ASSERT(!one.doomed && !one.unshared, "a live entry serves other requests");
      break;
    case evicting:
      PINFOLD_ASSERT(one.in == list_id::chosen || one.in == list_id::evicting, "an evicting entry can be found");
      PINFOLD_ASSERT(!one.doomed && !one.unshared, "an evicting entry serves other requests");
      break;
    case draining:
      PINFOLD_ASSERT(one.in == list_id::retired || one.in == list_id::held || one.in == list_id::queued,
                     "no draining entry is forgotten");
      break;
    case quarantined: PINFOLD_ASSERT(one.in == list_id::quarantined, "no entry in quarantine is forgotten"); break;
  }
#endif
}

}  // namespace pinfold::core
