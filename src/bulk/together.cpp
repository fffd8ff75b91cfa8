// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_cancellation.hpp"

#include <pinfold/detail/together.hpp>

#include <exception>
#include <thread>
#include <vector>

namespace pinfold {

namespace {

bool started_step(std::vector<std::jthread>& threads, std::size_t number, void* context,
                  void (*step)(void*, std::size_t) noexcept) noexcept try {
  threads.emplace_back([=] { step(context, number); });
  return true;
} catch (const std::exception&) {
  return false;  // no memory, or no thread: slower, not wrong
}

}  // namespace

void detail::run_together(std::size_t count, void* context, void (*step)(void*, std::size_t) noexcept) noexcept {
  if (count == 0) return;
  const no_cancellation guard;
  std::vector<std::jthread> threads;
  std::size_t next = 1;
  while (next < count && started_step(threads, next, context, step)) ++next;
  step(context, 0);
  for (; next < count; ++next) step(context, next);
}

}  // namespace pinfold
