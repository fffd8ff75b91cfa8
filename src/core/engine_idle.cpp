// SPDX-License-Identifier: BSD-3-Clause
// Closes imports that were not used for `idle_timeout`. An importer does not learn that the exporter freed a buffer,
// and the exporter's memory stays allocated while it is mapped here.
#include "core/engine.hpp"

namespace pinfold::detail {

// Queues the closes of idle imports. Entries that eviction marked before go, too: they were not used since the hand
// passed them.
void engine::queue_idle() noexcept {
  if (!sweep_.due()) return;
  index::entry_list chosen;
  for (auto left = reusable_.size(); left > 0; --left) {
    entry& one = *reusable_.front();
    const bool visited = one.visited_since_sweep();
    if (!visited && one.pins() <= 0) {
      begin_evict(one, chosen);
    } else {
      one.used = one.pins() > 0;  // a lease that lasts is a use
      reusable_.remove(&one);
      reusable_.push_back(&one);
    }
  }
  keep_unpinned(chosen);
  while (entry* idle = evicting_.front()) {
    counters_.add(counter::expired);
    history_.remember(idle->peer(), idle->covered().begin, miss_reason::evicted);
    retire(*idle);
  }
  sort_retired();
}

}  // namespace pinfold::detail
