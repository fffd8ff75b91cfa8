// SPDX-License-Identifier: BSD-3-Clause
// A listener without a thread: the caller carries its answers.
#include "os/check.hpp"
#include "release/listener_state.hpp"

#include "os/no_cancellation.hpp"

#include <cerrno>
#include <new>
#include <utility>

namespace pinfold {

result<std::uint64_t> release_listener::state::begin_open_carried(const release_target& what) {
  PINFOLD_ASSERT(send != nullptr, "a listener without a thread has a function that sends");
  answer_room last(1);
  const std::scoped_lock guard(mutex);
  const auto known = memories.find(what.id);
  if (retired.contains(what.id) || (known != memories.end() && known->second.asked)) {
    ++counts.refused;
    return fail(errc::stale_handle, retired_text);
  }
  memory& wanted = memories[what.id];
  if (wanted.last.empty()) wanted.last = std::move(last);
  try {
    wanted.mappings.push_back({++last_number, what.peer, what.where});
  } catch (const std::bad_alloc&) {
    drop(what.id, last_number);
    throw;
  }
  ++counts.mappings;
  return last_number;
}

// `answers` has the order of the calls, because only one thread takes from it. `send` may release leases and call the
// listener: this function then returns at once, and the call below it on the stack sends the added answers.
result<void> release_listener::state::send_answers(std::unique_lock<std::mutex>& guard) noexcept {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the mutex");
  result<void> done;
  if (answers.empty() || sender) return guard.unlock(), done;
  const auto self = weak_from_this().lock();  // `send` may destroy the listener
  sender = std::this_thread::get_id();
  while (done && !answers.empty() && !send_ended) {
    answer_room next;
    next.splice(next.end(), answers, answers.begin());
    guard.unlock();
    done = send(next.front());
    guard.lock();
    if (!done) answers.splice(answers.begin(), next);
  }
  PINFOLD_ASSERT(sender == std::this_thread::get_id(), "one thread at a time passes the answers on");
  sender.reset();
  sent->notify_all();
  guard.unlock();  // before `self` may destroy the mutex
  return done;
}

void release_listener::state::end_sending() noexcept {
  if (inherited()) return;
  const detail::no_cancellation whole;
  std::unique_lock guard(mutex);
  sent->wait(guard, [&] { return !sender || *sender == std::this_thread::get_id(); });
  send_ended = true;
}

result<release_listener> release_listener::create(send_call send) noexcept try {
  if (!send) return fail(errc::invalid_argument, "a listener without a thread needs a function that sends");
  auto made = std::make_shared<state>();
  made->send = std::move(send);
  // A thread that sends keeps the state alive. The copies of the listener hold it through a pointer of their own; after
  // its end, no thread calls `send`.
  state* const of = made.get();
  return release_listener(std::shared_ptr<state>(of, [made = std::move(made)](state* last) { last->end_sending(); }));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, state::no_memory_text);
}

}  // namespace pinfold
