// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/selection/hooks_alone.hpp"

#include "monitors/code_scan/other_code.hpp"
#include "monitors/hooks/copies.hpp"
#include "os/check.hpp"

#include <mutex>
#include <utility>

namespace pinfold::monitors {

namespace {

range segment_of(const found_function& one) noexcept {
  return one.entry == 0 ? range{} : range{one.segment.at, one.segment.end()};
}

// Returns the code that the hooks have found and hooked: `hooks::watch` searches for copies of libc before any entry is
// kept.
code_scan::known_code hooked_code() {
  code_scan::known_code known;
  const auto own = own_copy();
  if (!own) return known;
  const auto copies = with_new_copies(*own).value_or(*own);
  PINFOLD_ASSERT(copies.count > 0, "the program's own copy of libc is always found");
  for (const auto& copy : copies.found()) {
    for (const auto& one : copy)
      if (one.entry != 0) known.hooked.push_back(one.entry);
    known.libc.push_back(segment_of(copy[static_cast<std::size_t>(events::function::munmap)]));
  }
  known.linker = segment_of(copies.all.front()[static_cast<std::size_t>(events::function::linker_munmap)]);
  return known;
}

/// Holds the hooks as long as it relies on them: without them it would miss new code.
class trusted final : public invalidation::monitor {
 public:
  explicit trusted(std::shared_ptr<invalidation::monitor> in_use)
      : hooks_(std::move(in_use)), other_code_(invalidation::event_log::here(), hooked_code) {}

  [[nodiscard]] const char* name() const noexcept override { return hooks_->name(); }
  [[nodiscard]] result<void> watch(const range& pages) noexcept override {
    if (!hooks_->ensure_works()) return fail(errc::closed, hooks_->why_not());
    auto watched = hooks_->watch(pages);  // first: it hooks code that was loaded since the last call
    if (!other_code_.none()) return fail(errc::closed, other_code_.text());
    return watched;
  }
  [[nodiscard]] bool works() const noexcept override { return !other_code_.found() && hooks_->works(); }
  [[nodiscard]] const char* why_not() const noexcept override {
    return other_code_.found() ? other_code_.text() : hooks_->why_not();
  }

  [[nodiscard]] code_scan::other_code& other_code() noexcept { return other_code_; }

 protected:
  bool restart() noexcept override { return hooks_->ensure_works() && !other_code_.found(); }

 private:
  std::shared_ptr<invalidation::monitor> hooks_;
  code_scan::other_code other_code_;
};

/// The hooks monitor that caches share. In a child of fork(2), a thread that the child does not have may hold the
/// mutex, so the child shares none.
struct shared_trust {
  std::mutex mutex;
  std::weak_ptr<trusted> last;
};

std::shared_ptr<trusted> shared_or_new(std::shared_ptr<invalidation::monitor> hooks) {
  static shared_trust all;
  static const auto process = invalidation::event_log::here().process();
  if (invalidation::event_log::here().process() != process) return std::make_shared<trusted>(std::move(hooks));
  std::shared_ptr<trusted> found;  // declared outside the lock: its destructor may take other locks
  {
    const std::lock_guard locked(all.mutex);
    found = all.last.lock();
  }
  if (found != nullptr && !found->other_code().found()) return found;
  auto made = std::make_shared<trusted>(std::move(hooks));
  const std::lock_guard locked(all.mutex);
  all.last = made;
  return made;
}

}  // namespace

hooks_alone trust_hooks_alone(std::shared_ptr<invalidation::monitor> hooks) {
  auto made = shared_or_new(std::move(hooks));
  if (made->other_code().none()) return {std::move(made), {}};
  return {nullptr, made->other_code().text()};
}

}  // namespace pinfold::monitors
