// SPDX-License-Identifier: BSD-3-Clause
#include "node_budget/forks.hpp"

#include "os/check.hpp"
#include "os/no_fork.hpp"

#include <cerrno>
#include <memory>
#include <pthread.h>

namespace pinfold::node {

namespace {

constinit os::mutex listing;
constinit membership* first = nullptr;  // guarded by `listing`
constinit int unwatched = EAGAIN;       // guarded by `listing`; the error of pthread_atfork
thread_local bool listing_is_mine = false;

// Registered when the library is loaded: fork(2) runs only the handlers that were registered when it began.
[[maybe_unused]] const int from_the_start = forks::watch().refusal();

void before() noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  os::wait_for_no_fork();
  if (!listing_is_mine) listing.lock();  // a signal handler may fork
}
void after() noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  if (!listing_is_mine) listing.unlock();
}

}  // namespace

// Makes a new mutex, because a thread that the child does not have may have locked the old one.
void forks::in_child() noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  for (membership* one = first; one != nullptr; one = one->next_) {
    one->left_.store(true, std::memory_order_relaxed);
    one->file_.close();
  }
  first = nullptr;
  std::construct_at(&listing);
  if (listing_is_mine) listing.lock();
}

forks::watch::watch() PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  PINFOLD_ASSERT(!listing_is_mine, "a thread watches for forks once at a time");
  listing.lock();
  listing_is_mine = true;
  if (unwatched != 0) unwatched = ::pthread_atfork(before, after, in_child);
}

forks::watch::~watch() PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  PINFOLD_ASSERT(listing_is_mine, "the thread that began to watch ends it");
  listing_is_mine = false;
  listing.unlock();
}

int forks::watch::refusal() const noexcept { return unwatched; }

void forks::watch::add(membership& one) noexcept {
  PINFOLD_ASSERT(listing_is_mine && one.next_ == nullptr && first != &one,
                 "this thread watches, and a membership is listed once");
  one.next_ = first;
  first = &one;
}

void forks::watch::remove(membership& one) noexcept {
  PINFOLD_ASSERT(listing_is_mine, "this thread watches for forks");
  for (membership** at = &first; *at != nullptr; at = &(*at)->next_) {
    if (*at != &one) continue;
    *at = one.next_;
    return;
  }
  PINFOLD_ASSERT(false, "a membership that leaves is listed");
}

void forks::watch::share(membership& one, const std::shared_ptr<node_budget>& owner) noexcept {
  one.owner_object_ = owner;
}

std::shared_ptr<node_budget> forks::watch::find(std::string_view name) const noexcept {
  PINFOLD_ASSERT(listing_is_mine, "this thread watches for forks");
  for (const membership* one = first; one != nullptr; one = one->next_)
    if (one->name_ == name)
      if (auto found = one->owner_object_.lock()) return found;
  return nullptr;
}

}  // namespace pinfold::node
