// SPDX-License-Identifier: BSD-3-Clause
#include "invalidation/leaving.hpp"

#include "os/wiped_pages.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <sched.h>

namespace pinfold::watch {

namespace {

/// The state of `leave`, on a page that the kernel wipes in a child: there the copy of the descriptor would act on the
/// parent's memory.
struct gate {
  std::atomic<std::uint64_t> word{0};  ///< `opened`, and `one_inside` for each thread that uses the descriptor
  std::atomic<unsigned> staying{0};    ///< how many `all_stay` objects exist
  std::atomic<int> descriptor{-1};
  std::atomic<leave_function> how{nullptr};
};
constexpr std::uint64_t opened = 1;
constexpr std::uint64_t one_inside = 2;

std::atomic<gate*> the_gate{nullptr};

gate* gate_here() noexcept {
  gate* found = the_gate.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  void* const page = wiped_pages(sizeof(gate));
  if (page == nullptr) return nullptr;
  auto* const made = new (page) gate;
  if (the_gate.compare_exchange_strong(found, made)) return made;
  ::munmap(page, sizeof(gate));
  return found;
}

}  // namespace

void let_leave(leave_function how, int descriptor) noexcept {
  gate* const here = gate_here();
  if (here == nullptr || here->word.load() != 0) return;
  here->how.store(how, std::memory_order_relaxed);
  here->descriptor.store(descriptor, std::memory_order_relaxed);
  here->word.fetch_or(opened);
}

void let_leave_no_more() noexcept {
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds patience{1};
  gate* const here = the_gate.load(std::memory_order_acquire);
  if (here == nullptr) return;
  here->word.fetch_and(~opened);
  for (const auto until = steady_clock::now() + patience; here->word.load() != 0 && steady_clock::now() < until;)
    ::sched_yield();
}

// A thread inside keeps the descriptor from being closed, and so its number from being another file's.
void leave(const range& pages) noexcept {
  gate* const here = the_gate.load(std::memory_order_acquire);
  if (here == nullptr || (here->word.load(std::memory_order_relaxed) & opened) == 0 || here->staying.load() != 0)
    return;
  if ((here->word.fetch_add(one_inside) & opened) != 0)
    here->how.load(std::memory_order_relaxed)(here->descriptor.load(std::memory_order_relaxed), pages);
  here->word.fetch_sub(one_inside);
}

all_stay::all_stay() noexcept : gate_(gate_here()) {
  if (gate_ != nullptr) static_cast<gate*>(gate_)->staying.fetch_add(1);
}

all_stay::~all_stay() {
  if (gate_ != nullptr) static_cast<gate*>(gate_)->staying.fetch_sub(1);
}

}  // namespace pinfold::watch
