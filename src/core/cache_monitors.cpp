// SPDX-License-Identifier: BSD-3-Clause
#include "core/cache_monitors.hpp"

#include "os/page_bytes.hpp"

#include <pinfold/detail/pages.hpp>

namespace pinfold::core {

namespace {

std::string what_became_of(const invalidation::monitor& one) {
  std::string text = std::string(one.name()) + " failed: " + one.last_failure();
  if (one.works()) return text + "; the monitor works again";
  return text + "; the monitor does not work: " + one.why_not();
}

}  // namespace

bool cache_monitors::is_watched(const range& extent, reporter& to) noexcept {
  const auto watched = set_->watch(detail::aligned_out(extent, os::page_bytes()));
  if (set_->changes() != changes_told_.load(std::memory_order_relaxed)) tell_changes(to);
  if (watched) return true;
  event refused{event_kind::not_kept, severity::info};
  refused.where = extent;
  refused.cause = &watched.error();
  to.tell(refused);
  return false;
}

// Several threads may find the same change: one of them tells the sink.
void cache_monitors::tell_changes(reporter& to) noexcept {
  const auto now = set_->changes();
  if (changes_told_.exchange(now, std::memory_order_seq_cst) == now || !to.is_heard()) return;
  to.tell_text({event_kind::monitor_degraded, severity::warning}, [this](event& changed) {
    if (!set_->not_working().empty()) changed.level = severity::failure;
    std::string text;
    for (const auto& one : set_->all())
      if (one->failures() != 0) text += (text.empty() ? "" : "; ") + what_became_of(*one);
    return text;
  });
}

std::string cache_monitors::text_now() const {
  const std::string lost = any() ? set_->not_working() : std::string();
  return lost.empty() ? text_ : "none (" + lost + ")";
}

}  // namespace pinfold::core
