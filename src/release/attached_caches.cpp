// SPDX-License-Identifier: BSD-3-Clause
#include "release/attached_caches.hpp"

#include "os/check.hpp"
#include "os/no_cancellation.hpp"

namespace pinfold::release {

std::uint64_t attached_caches::add(void* cache, invalidate_call on_invalidate, progress_call on_progress) {
  const std::scoped_lock guard(mutex_);
  all_.emplace(++last_, attached{cache, on_invalidate, on_progress});
  return last_;
}

void attached_caches::remove(std::uint64_t number) noexcept {
  const detail::no_cancellation whole;
  std::unique_lock guard(mutex_);
  PINFOLD_ASSERT(all_.contains(number), "an attachment is removed once");
  attached& leaving = all_.find(number)->second;
  leaving.removed = true;
  changed_->wait(guard, [&] { return leaving.users == 0; });
  all_.erase(number);
}

// A cache in use stays in the map, so the iterator stays valid without the lock.
template <class Use>
void attached_caches::for_each(Use use) noexcept {
  std::unique_lock guard(mutex_);
  for (auto next = all_.begin(); next != all_.end();) {
    attached& one = next->second;
    if (one.removed) {
      ++next;
      continue;
    }
    ++one.users;
    guard.unlock();
    use(one);
    guard.lock();
    ++next;
    PINFOLD_ASSERT(one.users > 0, "a cache in use counts this thread");
    if (--one.users == 0 && one.removed) changed_->notify_all();
  }
}

void attached_caches::invalidate(const std::vector<mapped_range>& gone) noexcept {
  for_each([&](const attached& one) {
    for (const auto& range : gone) one.invalidate(one.cache, range.peer, range.where);
  });
}

std::size_t attached_caches::progress() noexcept {
  std::size_t failed = 0;
  for_each([&](const attached& one) { failed += one.progress(one.cache).has_value() ? 0 : 1; });
  return failed;
}

}  // namespace pinfold::release
