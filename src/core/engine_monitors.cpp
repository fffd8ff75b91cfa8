// SPDX-License-Identifier: BSD-3-Clause
// Asking the monitors about memory before the driver is called, and telling the sink about changes of the monitors
// (R53).
#include "core/engine.hpp"
#include "os/page_bytes.hpp"

#include <pinfold/detail/pages.hpp>

namespace pinfold::detail {

namespace {

std::string what_became_of(const invalidation::monitor& one) {
  std::string text = std::string(one.name()) + " failed: " + one.last_failure();
  if (one.works()) return text + "; the monitor works again";
  return text + "; the monitor does not work: " + one.why_not();
}

}  // namespace

// Asks the monitors to watch `extent`, before the driver is called. Called without the mutex: a monitor may have to ask
// the kernel, or be restarted.
bool engine::is_watched(const range& extent) noexcept {
  const auto watched = monitors_->watch(aligned_out(extent, os::page_bytes()));
  if (monitors_->changes() != changes_told_.load(std::memory_order_relaxed)) tell_changes();
  if (watched) return true;
  event refused{event_kind::not_kept, severity::info};
  refused.where = extent;
  refused.cause = &watched.error();
  tell(refused);
  return false;
}

// Tells the sink about a change of the monitors. Several threads may find the same change: one of them tells.
void engine::tell_changes() noexcept {
  const auto now = monitors_->changes();
  if (changes_told_.exchange(now, std::memory_order_seq_cst) == now || !(options_.sink || is_observed())) return;
  try {
    const bool well = monitors_->not_working().empty();
    std::string text;
    for (const auto& one : monitors_->all())
      if (one->failures() != 0) text += (text.empty() ? "" : "; ") + what_became_of(*one);
    event changed{event_kind::monitor_degraded, well ? severity::warning : severity::failure};
    changed.text = text.c_str();
    tell(changed);
  } catch (...) {  // no memory for a line of text is no reason to refuse the request
    counters_.add(core::shared_counter::sink_failures);
  }
}

std::uint64_t engine::monitor_failures() const noexcept {
  return monitors_ != nullptr ? monitors_->failures() - failures_before_ : 0;
}

std::string engine::monitors() const {
  const std::string lost = monitors_ != nullptr && here() ? monitors_->not_working() : std::string();
  return lost.empty() ? monitors_text_ : "none (" + lost + ")";
}

}  // namespace pinfold::detail
