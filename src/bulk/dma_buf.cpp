// SPDX-License-Identifier: BSD-3-Clause
#include "os/check.hpp"
#include "os/condition.hpp"
#include "os/file.hpp"
#include "os/no_cancellation.hpp"
#include "os/this_process.hpp"

#include <pinfold/detail/or_error.hpp>
#include <pinfold/dma_buf.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fcntl.h>
#include <list>
#include <mutex>
#include <unistd.h>
#include <vector>

namespace pinfold {

namespace {

constexpr std::chrono::seconds longest_export{60};
constexpr const char* no_memory = "no memory for a dma-buf";
constexpr const char* not_contained = "the exported dma-buf does not contain all of the memory";

using answer = result<std::optional<dma_buf_position>>;

/// A dma-buf of the list that is kept owns its descriptor. The program may close that number and use it for a file.
struct buffer {
  exported_dma_buf made{};
  os::file owned;
};

// Nodes move between lists without an allocation.
using buffers = std::list<buffer>;

dma_buf_position position_in(const exported_dma_buf& buffer, const range& memory, int descriptor) noexcept {
  return {descriptor, buffer.offset + (memory.begin - buffer.memory.begin)};
}

answer duplicate(const exported_dma_buf& from, const range& memory) noexcept {
  const int copy = ::fcntl(from.descriptor, F_DUPFD_CLOEXEC, 3);
  if (copy >= 0) return position_in(from, memory, copy);
  return fail_errno(errc::driver_error, errno, "no descriptor is left for another use of a dma-buf");
}

}  // namespace

// The mutex guards all members that are not constant. A thread holds it while it duplicates a descriptor, so that no
// other thread closes the descriptor meanwhile, and during no other call.
struct shared_dma_buf::state {
  explicit state(export_function calls) : exporter(std::move(calls)) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  using lock = std::unique_lock<std::mutex>;

  // In a child of fork(2), no thread ends the requests, and the mutex may be locked.
  [[nodiscard]] bool here() const noexcept { return os::this_process() == process; }

  [[nodiscard]] bool is_requested(const range& memory) const noexcept { return any_overlaps(requests, memory); }

  // Throws std::bad_alloc.
  void begin(const range& memory) {
    const std::lock_guard guard(mutex);
    requests.push_back(memory);
  }

  void end(const range& memory) noexcept {
    buffers unused;  // closed without the mutex
    const std::lock_guard guard(mutex);
    PINFOLD_ASSERT(std::find(requests.begin(), requests.end(), memory) != requests.end(),
                   "a request that ends was begun");
    requests.erase(std::find(requests.begin(), requests.end(), memory));
    for (auto one = open.begin(); one != open.end();) {
      const auto next = std::next(one);
      if (!is_requested(one->made.memory)) unused.splice(unused.end(), open, one);
      one = next;
    }
  }

  // Throws std::bad_alloc, before the export.
  answer position(const range& memory) {
    const auto until = std::chrono::steady_clock::now() + longest_export;
    lock guard(mutex);
    for (;;) {
      if (const auto* known = find(memory)) return give(duplicate(*known, memory));
      if (!any_overlaps(exporting, memory)) break;
      if (exported->wait_until(guard, until) == std::cv_status::timeout)
        return fail_errno(errc::timed_out, ETIMEDOUT, "another thread's export of a dma-buf takes too long");
    }
    buffers fresh(1);
    const bool shared = is_requested(memory);
    if (shared) exporting.push_back(memory);
    guard.unlock();
    const auto made = call_exporter(memory);
    guard.lock();
    if (shared) {
      PINFOLD_ASSERT(std::find(exporting.begin(), exporting.end(), memory) != exporting.end(),
                     "an export that returns was listed");
      exporting.erase(std::find(exporting.begin(), exporting.end(), memory));
      exported->notify_all();
    }
    if (!made) return ++counted.failures, tl::unexpected(made.error());
    const std::optional<exported_dma_buf>& given = *made;
    if (!given) return std::nullopt;
    ++counted.exports;
    fresh.front().made = *given;
    return keep_or_give(fresh, memory, guard);
  }

  // Exports without sharing, for a child of fork(2).
  [[nodiscard]] answer export_alone(const range& memory) const noexcept {
    const auto made = call_exporter(memory);
    if (!made) return tl::unexpected(made.error());
    const std::optional<exported_dma_buf>& given = *made;
    if (!given) return std::nullopt;
    if (given->memory.contains(memory)) return position_in(*given, memory, given->descriptor);
    ::close(given->descriptor);
    return fail(errc::invalid_range, not_contained);
  }

  // Turns an exception into an error: otherwise the memory would stay listed in `exporting`.
  [[nodiscard]] result<std::optional<exported_dma_buf>> call_exporter(const range& memory) const noexcept try {
    auto made = exporter(memory);
    if (!made) return made;
    std::optional<exported_dma_buf>& given = *made;
    if (!given) return made;
    given->descriptor = os::above_standard(given->descriptor);
    if (given->descriptor < 0) return fail_errno(os::code_for(errno), errno, "no descriptor is left for a dma-buf");
    return made;
  } catch (...) {
    return fail(errc::driver_error, "the function that exports dma-bufs threw an exception, or is empty");
  }

  // Keeps the new descriptor and returns a duplicate; returns the descriptor itself if no request needs it any more, or
  // if another thread's is kept already.
  answer keep_or_give(buffers& fresh, const range& memory, lock& guard) noexcept {
    PINFOLD_ASSERT(guard.owns_lock() && fresh.size() == 1, "the caller holds the mutex, and has a node for the buffer");
    const exported_dma_buf made = fresh.front().made;
    const bool fits = made.memory.contains(memory);
    if (fits && (!is_requested(made.memory) || find(memory) != nullptr))
      return give(position_in(made, memory, made.descriptor));
    const auto copy = fits ? give(duplicate(made, memory)) : answer(fail(errc::invalid_range, not_contained));
    if (copy) {
      fresh.front().owned = os::file(made.descriptor);
      open.splice(open.end(), fresh);
      return copy;
    }
    guard.unlock();
    ::close(made.descriptor);
    return copy;
  }

  answer give(answer what) noexcept {
    if (what) ++counted.given;
    return what;
  }

  [[nodiscard]] const exported_dma_buf* find(const range& memory) const noexcept {
    const auto found = std::find_if(open.begin(), open.end(), [&](const buffer& one) {
      return one.made.memory.contains(memory) && one.owned.still_there();
    });
    return found == open.end() ? nullptr : &found->made;
  }

  static bool any_overlaps(const std::vector<range>& list, const range& memory) noexcept {
    return std::any_of(list.begin(), list.end(), [&](const range& one) { return one.overlaps(memory); });
  }

  const std::uint64_t process = os::this_process();
  std::mutex mutex;
  os::condition exported;
  const export_function exporter;
  std::vector<range> requests;   // one for each live request
  std::vector<range> exporting;  // memory of requests for which a thread calls `exporter`
  buffers open;                  // kept for the requests
  dma_buf_counts counted;
};

shared_dma_buf::shared_dma_buf(export_function exporter) : state_(std::make_shared<state>(std::move(exporter))) {}

result<shared_dma_buf::request> shared_dma_buf::begin(const range& memory) noexcept {
  if (memory.empty()) return fail(errc::invalid_range, "the range is empty or wraps around");
  if (!state_->here()) return request{};
  return detail::or_error(no_memory, no_memory, [&]() -> result<request> {
    state_->begin(memory);
    request begun;
    begun.of_ = state_;
    begun.memory_ = memory;
    return begun;
  });
}

shared_dma_buf::request::~request() {
  const detail::no_cancellation guard;
  if (of_ && of_->here()) of_->end(memory_);
}

answer shared_dma_buf::position(const range& memory) noexcept {
  const detail::no_cancellation guard;
  return detail::or_error(no_memory, no_memory,
                          [&] { return state_->here() ? state_->position(memory) : state_->export_alone(memory); });
}

dma_buf_counts shared_dma_buf::counts() const noexcept {
  if (!state_->here()) return {};
  const std::lock_guard guard(state_->mutex);
  dma_buf_counts now = state_->counted;
  now.open = state_->open.size();
  return now;
}

}  // namespace pinfold
