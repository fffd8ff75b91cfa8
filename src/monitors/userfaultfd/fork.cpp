// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/fork.hpp"

#include "os/check.hpp"
#include "os/no_fork.hpp"

#include <array>
#include <atomic>
#include <pthread.h>

namespace pinfold::monitors::uffd {

namespace {

enum class keeping : std::uint8_t { nothing, changing, these };

std::atomic<keeping> state{keeping::nothing};
std::array<descriptor, 2> kept;  // only the thread that set the state to `changing` writes them

void in_child() noexcept {
  if (state.load(std::memory_order_acquire) == keeping::these)
    for (auto& one : kept) one.close();
  state.store(keeping::nothing, std::memory_order_release);
}

// Installing it twice is harmless.
int have_handler() noexcept {
  static std::atomic<bool> there{false};
  if (there.load(std::memory_order_acquire)) return 0;
  const int native = ::pthread_atfork(nullptr, nullptr, in_child);
  if (native == 0) there.store(true, std::memory_order_release);
  return native;
}

// Registered when the library is loaded: fork(2) runs only the handlers that were registered when it began.
[[maybe_unused]] const int from_the_start = have_handler();

}  // namespace

result<void> keep_from_children(const descriptor& uffd, const descriptor& maps) noexcept {
  auto none = keeping::nothing;
  if (!state.compare_exchange_strong(none, keeping::changing, std::memory_order_acquire))
    return fail(errc::unsupported, "this process has a userfaultfd monitor already");
  if (const int native = have_handler(); native != 0) {
    state.store(keeping::nothing, std::memory_order_release);
    return fail_errno(errc::out_of_resources, native, "no memory to track forks");
  }
  kept = {uffd, maps};
  state.store(keeping::these, std::memory_order_release);
  return {};
}

void forget_for_children() noexcept {
  const os::no_fork since_they_were_closed;
  PINFOLD_ASSERT(state.load(std::memory_order_relaxed) == keeping::these, "the descriptors were kept until now");
  state.store(keeping::nothing, std::memory_order_release);
}

}  // namespace pinfold::monitors::uffd
