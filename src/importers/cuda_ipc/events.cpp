// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/events.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace pinfold::cuda_ipc {

using cuda::status;

// Calls the driver under the lock, so that an event is opened once.
status event_table::find_or_open(const cuda::driver_table& calls, const cuda_ipc_event& shared, opened_event*& found) {
  const std::scoped_lock guard(mutex_);
  const auto [there, first] = opened_.try_emplace(shared.bytes);
  auto answer = status::success;
  if (first) {
    cuda::ipc_event_handle handle{};
    std::memcpy(handle.reserved, shared.bytes.data(), sizeof handle.reserved);
    answer = calls.ipc_open_event_handle(&there->second.event, handle);
  }
  found = &there->second;
  found->last_use = ++uses_;
  ++found->callers;
  if (answer != status::success) opened_.erase(there);
  while (opened_.size() > most && destroy_oldest(calls)) {
  }
  return answer;
}

// A stream that waits already keeps what it needs of the event, which the driver frees when that wait is over.
bool event_table::destroy_oldest(const cuda::driver_table& calls) noexcept {
  const auto order = [](const auto& one) { return std::pair(one.second.callers != 0, one.second.last_use); };
  const auto oldest = std::ranges::min_element(opened_, {}, order);
  if (oldest->second.callers != 0) return false;
  static_cast<void>(calls.event_destroy(oldest->second.event));
  opened_.erase(oldest);
  return true;
}

result<void> event_table::wait(const cuda::primary_context& in, const cuda_ipc_event& shared,
                               cuda::stream stream) noexcept try {
  const auto answer = in.with([&] {
    opened_event* event = nullptr;
    const auto found = find_or_open(in.calls(), shared, event);
    if (found != status::success) return found;
    const auto done = in.calls().stream_wait_event(stream, event->event, 0);
    const std::scoped_lock guard(mutex_);
    --event->callers;
    return done;
  });
  return cuda::checked(answer, "cannot wait for the exporter's event");
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

void event_table::destroy_all(const cuda::driver_table& calls) noexcept {
  for (const auto& one : opened_) static_cast<void>(calls.event_destroy(one.second.event));
  opened_.clear();
}

}  // namespace pinfold::cuda_ipc
