// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/other_code.hpp"

#include "monitors/code_scan/instructions.hpp"
#include "monitors/code_scan/rings.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <new>

namespace pinfold::monitors::code_scan {

using invalidation::code_events;

other_code::other_code(invalidation::event_log& event_log, known_source known)
    : event_log_(event_log), known_(known), clean_(std::make_shared<const regions>()) {
  code_events.relied_on.fetch_add(1, std::memory_order_seq_cst);
  look();
}

other_code::~other_code() {
  PINFOLD_ASSERT(code_events.relied_on.load(std::memory_order_relaxed) > 0, "an object that relies on it is counted");
  code_events.relied_on.fetch_sub(1, std::memory_order_seq_cst);
}

// Two threads may scan at the same time: the later result counts.
void other_code::look() noexcept try {
  const auto sum = code_events.sum();
  const auto changed = code_events.changed.load(std::memory_order_acquire);
  std::shared_ptr<const regions> before;
  {
    const std::lock_guard locked(mutex_);
    if (changed_ == changed) before = clean_;
  }
  auto now = std::make_shared<regions>();
  const auto text = look_at_new(before != nullptr ? *before : regions{}, *now);
  const std::lock_guard locked(mutex_);
  if (!text.empty()) return note(text);
  if (looked_.load(std::memory_order_relaxed) != UINT64_MAX && looked_.load(std::memory_order_relaxed) > sum) return;
  before.swap(clean_);
  clean_ = std::move(now);
  changed_ = changed;
  looked_.store(sum, std::memory_order_release);
} catch (const std::bad_alloc&) {
  const std::lock_guard locked(mutex_);
  note("no memory to scan the program's code");
}

std::string other_code::look_at_new(const regions& before, regions& now) const {
  if (!can_decode()) return "code cannot be decoded in this build";
  if (code_events.rings.load(std::memory_order_acquire) != 0 || has_rings())
    return "the process has an io_uring, which can discard memory";
  auto all = executable_memory();
  if (!all) return "/proc/thread-self/maps cannot be read";
  const auto known = known_();
  for (auto& one : *all) {
    const bool seen = one.is_of_a_file() && std::find(before.begin(), before.end(), one) != before.end();
    auto text = seen ? std::string() : danger_in(one, known);
    if (!text.empty()) return text;
    now.push_back(std::move(one));
  }
  return {};
}

void other_code::note(const std::string& text) noexcept {
  PINFOLD_ASSERT(!text.empty(), "code that was found has a description");
  if (found_.load(std::memory_order_relaxed)) return;
  std::copy_n(text.begin(), std::min(text.size(), text_.size() - 1), text_.begin());
  found_.store(true, std::memory_order_release);
  event_log_.post_everything(invalidation::source::hooks);
}

}  // namespace pinfold::monitors::code_scan
