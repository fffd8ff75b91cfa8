// SPDX-License-Identifier: BSD-3-Clause
// Calls by threads of the library that may come after the end of the cache.
#include "core/engine.hpp"

#include <utility>

namespace pinfold::detail {

void engine::stay() noexcept { owing_.fetch_add(1, std::memory_order_relaxed); }

void engine::stay_no_longer(engine* from) noexcept { destroy(from->leave()); }

// The driver may have opened an entry for this call after the end of the cache closed all others.
void engine::end_background_call() noexcept {
  if (background_.stopped()) {
    for (shard& in : shards_) {
      os::scoped_lock guard(in.mutex);
      if (in.drained) close_everything(in);
    }
    leave_shards();
  }
  background_.leave();
}

// The importer's thread keeps only the engine's memory, not the back end, which would keep itself.
void engine::watch_exporters() {
  if (!driver_.tells_ends()) return;
  auto use = background_use::begin(this);
  if (!use) return;
  exporters_ = std::make_shared<background_use>(*std::move(use));
  driver_.tell_ends([from = std::weak_ptr(exporters_)](peer_id peer, range where, const void* token) {
    const auto kept = from.lock();
    if (!kept) return;
    const background_use::call now(*kept);
    if (now.on() != nullptr) static_cast<void>(now.on()->drop(peer, where, token));  // a failure is told, and retried
  });
}

result<background_use> background_use::begin(engine* on) noexcept {
  if (auto right = usable(on); !right) return tl::unexpected(right.error());
  on->stay();
  return background_use(on);
}

background_use::background_use(background_use&& other) noexcept : on_(std::exchange(other.on_, nullptr)) {}

background_use& background_use::operator=(background_use&& other) noexcept {
  background_use old(std::move(*this));
  on_ = std::exchange(other.on_, nullptr);
  return *this;
}

background_use::~background_use() {
  if (on_ != nullptr && on_->here()) engine::stay_no_longer(on_);
}

background_use::call::call(const background_use& by) noexcept
    : on_(by.on_ != nullptr && by.on_->here() && by.on_->background().enter() ? by.on_ : nullptr) {}

background_use::call::~call() {
  if (on_ != nullptr) on_->end_background_call();
}

}  // namespace pinfold::detail
