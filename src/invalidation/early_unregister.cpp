// SPDX-License-Identifier: BSD-3-Clause
#include "invalidation/early_unregister.hpp"

#include "os/check.hpp"
#include "os/wiped_pages.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <sched.h>

namespace pinfold::invalidation {

namespace {

/// The state of `early_unregister`, on a page that the kernel wipes in a child, where the copied descriptor would act
/// on the parent's memory.
struct state {
  std::atomic<std::uint64_t> word{0};  ///< `opened`, and `one_inside` for each thread that uses the descriptor
  std::atomic<unsigned> staying{0};    ///< how many `no_early_unregister` objects exist
  std::atomic<int> descriptor{0};
  std::atomic<unregister_function> how{nullptr};
};
constexpr std::uint64_t opened = 1;
constexpr std::uint64_t one_inside = 2;

std::atomic<state*> the_state{nullptr};

}  // namespace

void enable_early_unregister(unregister_function how, int descriptor) noexcept {
  PINFOLD_ASSERT(how != nullptr && descriptor >= 0, "a watch has its function and its descriptor");
  state* const here = os::wiped_object(the_state);
  if (here == nullptr || here->word.load(std::memory_order_seq_cst) != 0) return;
  here->how.store(how, std::memory_order_relaxed);
  here->descriptor.store(descriptor, std::memory_order_relaxed);
  here->word.fetch_or(opened, std::memory_order_seq_cst);
}

void disable_early_unregister() noexcept {
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds longest_wait{1};
  state* const here = the_state.load(std::memory_order_acquire);
  if (here == nullptr) return;
  here->word.fetch_and(~opened, std::memory_order_seq_cst);
  for (const auto until = steady_clock::now() + longest_wait;
       here->word.load(std::memory_order_seq_cst) != 0 && steady_clock::now() < until;)
    ::sched_yield();
}

// A thread that is counted keeps the descriptor open, so that no other file gets its number.
void early_unregister(const range& pages) noexcept {
  state* const here = the_state.load(std::memory_order_acquire);
  if (here == nullptr || (here->word.load(std::memory_order_relaxed) & opened) == 0 ||
      here->staying.load(std::memory_order_seq_cst) != 0)
    return;
  if ((here->word.fetch_add(one_inside, std::memory_order_seq_cst) & opened) != 0)
    here->how.load(std::memory_order_relaxed)(here->descriptor.load(std::memory_order_relaxed), pages);
  here->word.fetch_sub(one_inside, std::memory_order_seq_cst);
}

no_early_unregister::no_early_unregister() noexcept : state_(os::wiped_object(the_state)) {
  if (state_ != nullptr) static_cast<state*>(state_)->staying.fetch_add(1, std::memory_order_seq_cst);
}

no_early_unregister::~no_early_unregister() {
  if (state_ != nullptr) static_cast<state*>(state_)->staying.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace pinfold::invalidation
