// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/events.hpp"

#include <cerrno>
#include <cstring>
#include <new>

namespace pinfold::cuda_ipc {

using cuda::status;

// Calls the driver under the lock, so that an event is opened once.
status event_table::find_or_open(const cuda::driver_table& calls, const cuda_ipc_event& shared, cuda::event& found) {
  const std::scoped_lock guard(mutex_);
  const auto [there, first] = opened_.try_emplace(shared.bytes, nullptr);
  auto answer = status::success;
  if (first) {
    cuda::ipc_event_handle handle{};
    std::memcpy(handle.reserved, shared.bytes.data(), sizeof handle.reserved);
    answer = calls.ipc_open_event_handle(&there->second, handle);
  }
  found = there->second;
  if (answer != status::success) opened_.erase(there);
  return answer;
}

result<void> event_table::wait(const cuda::primary_context& in, const cuda_ipc_event& shared,
                               cuda::stream stream) noexcept try {
  const auto answer = in.with([&] {
    cuda::event event = nullptr;
    const auto found = find_or_open(in.calls(), shared, event);
    return found == status::success ? in.calls().stream_wait_event(stream, event, 0) : found;
  });
  return cuda::checked(answer, "cannot wait for the exporter's event");
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

void event_table::destroy_all(const cuda::driver_table& calls) noexcept {
  for (const auto& one : opened_) static_cast<void>(calls.event_destroy(one.second));
  opened_.clear();
}

}  // namespace pinfold::cuda_ipc
