// SPDX-License-Identifier: BSD-3-Clause
#include "core/neighbours.hpp"

#include "core/engine.hpp"
#include "os/wiped_pages.hpp"

#include <atomic>
#include <string_view>

namespace pinfold::core {

using detail::background_use;

struct neighbour::list {
  os::mutex guard;
  neighbour* first PINFOLD_GUARDED_BY(guard) = nullptr;
  std::uint64_t last_number PINFOLD_GUARDED_BY(guard) = 0;
};

neighbour::list& neighbour::all() noexcept {
  static constinit std::atomic<list*> current{nullptr};
  static constinit list not_wiped;  // where the kernel cannot wipe (before Linux 4.14)
  list* const wiped = os::wiped_object(current);
  return wiped != nullptr ? *wiped : not_wiped;
}

void neighbour::join() noexcept {
  list& here = all();
  os::scoped_lock guard(here.guard);
  number_ = ++here.last_number;
  neighbour** at = &here.first;
  while (*at != nullptr) at = &(*at)->next_;
  *at = this;
}

void neighbour::leave() noexcept {
  if (number_ == 0) return;
  list& here = all();
  os::scoped_lock guard(here.guard);
  for (neighbour** at = &here.first; *at != nullptr; at = &(*at)->next_) {
    if (*at != this) continue;
    *at = next_;
    return;
  }
}

// An engine that is in the list has a cache, so that `begin` may keep its memory. The list is not locked while the
// engine works, and begins anew after it, at the next number.
bool neighbour::close_idle(const char* driver, const range& where, const detail::engine* asking) noexcept {
  bool any = false;
  for (std::uint64_t last = 0;;) {
    background_use use;
    {
      list& here = all();
      os::scoped_lock guard(here.guard);
      const neighbour* one = here.first;
      while (one != nullptr &&
             (one->number_ <= last || &one->mine_ == asking || std::string_view(one->mine_.driver_name()) != driver))
        one = one->next_;
      if (one == nullptr) return any;
      last = one->number_;
      if (auto begun = background_use::begin(&one->mine_)) use = std::move(*begun);
    }
    const background_use::call now(use);
    if (now.on() != nullptr && now.on()->close_idle(where)) any = true;
  }
}

}  // namespace pinfold::core
