// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/can_open.hpp"

#include "cuda/driver.hpp"
#include "fd_passing/host.hpp"
#include "fd_passing/process.hpp"
#include "fd_passing/reach.hpp"

#include <cstring>
#include <unistd.h>

namespace pinfold::cuda_ipc {

namespace {

constexpr auto no_answer = "cannot ask the CUDA driver for its devices";

/// Returns the device of the handle's memory; `unsupported` if this process does not see it.
result<cuda::device> device_of(const cuda::driver_table& calls, const cuda_ipc_handle& handle) noexcept {
  int count = 0;
  if (auto got = cuda::checked(calls.device_get_count(&count), no_answer); !got) return tl::unexpected(got.error());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::device seen{};
    cuda::uuid id{};
    if (auto got = cuda::checked(calls.device_get(&seen, ordinal), no_answer); !got) return tl::unexpected(got.error());
    if (auto got = cuda::checked(calls.device_get_uuid(&id, seen), no_answer); !got) return tl::unexpected(got.error());
    if (std::memcmp(id.bytes, handle.device.data(), sizeof id.bytes) == 0) return seen;
  }
  return fail(errc::unsupported, "the memory is on a device hidden from this process (CUDA_VISIBLE_DEVICES)");
}

result<void> reaches(const cuda::driver_table& calls, int ordinal, const cuda_ipc_handle& handle) noexcept {
  cuda::device own{};
  if (auto got =
          cuda::checked(calls.device_get(&own, ordinal), "no CUDA device has this number", errc::invalid_argument);
      !got)
    return got;
  const auto theirs = device_of(calls, handle);
  if (!theirs) return tl::unexpected(theirs.error());
  if (*theirs == own || calls.device_can_access_peer == nullptr) return {};
  int possible = 0;
  if (auto got = cuda::checked(calls.device_can_access_peer(&possible, own, *theirs), no_answer); !got) return got;
  return possible != 0 ? result<void>{} : fail(errc::unsupported, "this device cannot reach the peer's memory");
}

/// An allocation's handle can be opened without a message to the exporter, so an exporter that this process may not
/// inspect is no objection. An exporter in another PID namespace has no process of that number here, and counts as
/// ended.
result<void> exporter_runs(const cuda_ipc_handle& handle) noexcept {
  const auto process = fd_passing::open_process(origin_of(handle));
  if (!process && process.error() != errc::peer_gone) return {};
  if (process && !fd_passing::has_ended(*process)) return {};
  return fail(errc::peer_gone, "the exporting process has ended");
}

}  // namespace

result<void> is_for_import(const cuda_ipc_handle& handle) noexcept {
  if (!fd_passing::may_be_this_host(handle.host))
    return fail(errc::unsupported, "the handle is from another host, or from before a reboot");
  const auto pid = ::getpid();
  if (handle.pid == pid && fd_passing::start_time_of(pid) == handle.start_time)
    return fail(errc::unsupported, "the memory belongs to this process: use its own pointer");
  return {};
}

result<void> can_open(int device, const cuda_ipc_handle& handle, bool confirm) noexcept {
  if (const auto allocation = checked(handle); !allocation) return tl::unexpected(allocation.error());
  if (auto foreign = is_for_import(handle); !foreign) return foreign;
  const bool alone = kind_of(handle) == cuda_memory_kind::allocation && !confirm;
  auto reached = alone ? exporter_runs(handle) : fd_passing::can_fetch(fd_passing::transport::scm, origin_of(handle));
  if (!reached) return reached;
  const auto calls = cuda::driver();
  if (!calls) return tl::unexpected(calls.error());
  return reaches(**calls, device, handle);
}

}  // namespace pinfold::cuda_ipc
