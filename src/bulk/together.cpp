// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_cancellation.hpp"
#include "os/worker_group.hpp"

#include <pinfold/detail/together.hpp>

namespace pinfold::detail {

void run_together(std::size_t count, void* context, void (*step)(void*, std::size_t) noexcept) noexcept {
  if (count == 0) return;
  const no_cancellation guard;
  os::worker_group others;
  const auto started = others.start(count - 1, [=](std::size_t other) { step(context, other + 1); }).value_or(0);
  step(context, 0);
  for (auto next = started + 1; next < count; ++next) step(context, next);
}

}  // namespace pinfold::detail
