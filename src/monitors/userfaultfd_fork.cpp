// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd_fork.hpp"

#include <array>
#include <atomic>
#include <pthread.h>

namespace pinfold::monitors::uffd {

namespace {

enum class keeping : std::uint8_t { nothing, changing, these };

std::atomic<keeping> state{keeping::nothing};
std::array<descriptor, 2> kept;  // whoever made the state `changing` writes them

std::atomic<bool> handler_is_there{false};

void in_child() noexcept {
  if (state.load(std::memory_order_acquire) == keeping::these)
    for (auto& one : kept) one.close();
  state.store(keeping::nothing, std::memory_order_release);
}

}  // namespace

result<void> keep_from_children(const descriptor& uffd, const descriptor& maps) noexcept {
  auto none = keeping::nothing;
  if (!state.compare_exchange_strong(none, keeping::changing, std::memory_order_acquire))
    return fail(errc::unsupported, "this process has a userfaultfd monitor already");
  if (!handler_is_there.load(std::memory_order_relaxed)) {
    if (const int native = ::pthread_atfork(nullptr, nullptr, in_child); native != 0) {
      state.store(keeping::nothing, std::memory_order_release);
      return fail_errno(errc::out_of_resources, native, "no memory to be told of forks");
    }
    handler_is_there.store(true, std::memory_order_relaxed);
  }
  kept = {uffd, maps};
  state.store(keeping::these, std::memory_order_release);
  return {};
}

void forget_for_children() noexcept { state.store(keeping::nothing, std::memory_order_release); }

}  // namespace pinfold::monitors::uffd
