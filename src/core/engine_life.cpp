// SPDX-License-Identifier: BSD-3-Clause
// Construction, and the end of the engine's memory, which may outlive its cache.
#include "core/engine.hpp"
#include "os/barrier.hpp"

#include <utility>

namespace pinfold::detail {

engine* engine::make(const driver& table, cache_options options, core::cache_monitors::selected monitors,
                     std::shared_ptr<void> backend) {
  auto* made = new engine(table, std::move(options), std::move(monitors), std::move(backend));
  for (shard& in : made->shards_) {
    os::scoped_lock guard(in.mutex);
    in.control.guard.says_held();
    in.control.home = &in;
  }
  made->reporter_.start_page({made, [](const void* self, bool complete) noexcept {
                                return static_cast<const engine*>(self)->read_statistics(complete);
                              }});
  if (table.exclusive_in_process) made->neighbour_.join();
  return made;
}

void engine::destroy(engine* ended) noexcept { delete ended; }

engine::engine(const driver& table, cache_options options, core::cache_monitors::selected monitors,
               std::shared_ptr<void> backend)
    : engine_requests(*this, table, std::move(options), std::move(monitors), std::move(backend)),
      meets_no_cancellation_point_(!table.cancellation_points && !monitors_.any() && options_.audit_one_in == 0 &&
                                   !reporter_.times_opens()),
      listed_({this, event_log_.process_word(), process_, number_, number_.hits_before(), number_.finds_before(),
               driver_.table(), options_},
              shards_),
      owing_(shards_.size() + 1) {
  view_.seen = driver_.imports() ? process_ : events_.next() + monitors_.drain();
  static_cast<void>(os::barrier_in_use());  // before the first pin
  if (const auto one_in = core::page_audit::possible(options_.audit_one_in); one_in && !driver_.imports())
    audit_.emplace(*one_in);
  hits_need_the_mutex_ =
      !options_.retain || options_.entry_statistics || options_.trace_requests || number_ == 0 || audit_.has_value();
  if (!options_.reaper) return;
  ++owing_;
  reaper_.start(run_reaper, this);
}

// Detaches a shard whose cache has ended and which no thread needs any more: from now on a late release finds no shard.
// Returns the engine if this shard was the last to need it: then the caller destroys it.
engine* engine::leave_if_last(shard& in) noexcept {
  if (!in.orphaned || leases_out(in) + in.table.openings() + in.table.closes_in_flight() > 0) return nullptr;
  PINFOLD_ASSERT(in.table.opens_in_driver() == 0, "no thread is in the driver");
  in.control.guard.says_held();
  if (std::exchange(in.control.home, nullptr) == nullptr) return nullptr;
  return leave();
}

// Called after the calling thread used shards, possibly as their last user. Requires that the caller has not left.
void engine::leave_shards() noexcept {
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    [[maybe_unused]] const engine* last = leave_if_last(in);
    PINFOLD_ASSERT(last == nullptr, "the caller itself has not left");
  }
}

engine* engine::leave() noexcept {
  PINFOLD_ASSERT(owing_.load(std::memory_order_relaxed) > 0, "what needs the engine is counted");
  return owing_.fetch_sub(1, std::memory_order_acq_rel) == 1 ? this : nullptr;
}

}  // namespace pinfold::detail
