// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/refusal.hpp"

#include "fd_passing/process.hpp"

#include <cstring>

namespace pinfold::cuda_ipc {

namespace {

using cuda::status;

/// Returns whether the status means only that the handle is bad: the driver does not distinguish freed memory from
/// other causes.
bool blames_handle(status answer) noexcept {
  return answer == status::invalid_value || answer == status::invalid_handle || answer == status::map_failed ||
         answer == status::not_found || answer == status::unknown;
}

bool exporter_has_ended(const cuda_ipc_handle& handle) noexcept {
  const auto process = fd_passing::open_process(origin_of(handle));
  return process ? fd_passing::has_ended(*process) : process.error() == errc::peer_gone;
}

bool sees_device(const cuda::driver_table& calls, const cuda_ipc_handle& handle) noexcept {
  int count = 0;
  if (calls.device_get_count(&count) != status::success) return true;  // nothing contradicts it
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::device device{};
    cuda::uuid id{};
    if (calls.device_get(&device, ordinal) != status::success ||
        calls.device_get_uuid(&id, device) != status::success ||
        std::memcmp(id.bytes, handle.device.data(), sizeof id.bytes) == 0)
      return true;
  }
  return false;
}

error hidden(status answer) noexcept {
  return cuda::as_error(answer, "the memory is on a device hidden from this process (CUDA_VISIBLE_DEVICES)",
                        errc::unsupported);
}

}  // namespace

error refusal_of(const cuda::driver_table& calls, status answer, const cuda_ipc_handle& handle) noexcept {
  const error plain = cuda::as_error(answer, "the driver refuses to open the peer's memory");
  if (plain.code != errc::driver_error) return plain;
  if (exporter_has_ended(handle)) return cuda::as_error(answer, "the exporting process has ended", errc::peer_gone);
  const bool blames_device = answer == status::invalid_device;
  if (!blames_device && !blames_handle(answer)) return plain;
  if (!sees_device(calls, handle)) return hidden(answer);
  if (blames_device) return plain;
  return cuda::as_error(answer, "the exporter has freed this memory", errc::stale_handle);
}

error pool_refusal_of(const cuda::driver_table& calls, status answer, const cuda_ipc_handle& handle) noexcept {
  const error plain = cuda::as_error(answer, "cannot import the peer's memory pool");
  return plain.code == errc::driver_error && !sees_device(calls, handle) ? hidden(answer) : plain;
}

}  // namespace pinfold::cuda_ipc
