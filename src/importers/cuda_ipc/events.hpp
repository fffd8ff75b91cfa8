// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The events of other processes that an importer has opened.
#pragma once

#include "cuda/context.hpp"

#include <pinfold/importers/cuda_ipc.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>

namespace pinfold::cuda_ipc {

/// Thread-safe.
class event_table {
 public:
  /// Makes the stream wait for the event, and opens the event first if needed.
  [[nodiscard]] result<void> wait(const cuda::primary_context& in, const cuda_ipc_event& shared,
                                  cuda::stream stream) noexcept;

  /// Destroys all events. No other call may run.
  void destroy_all(const cuda::driver_table& calls) noexcept;

 private:
  [[nodiscard]] cuda::status find_or_open(const cuda::driver_table& calls, const cuda_ipc_event& shared,
                                          cuda::event& found);

  std::mutex mutex_;
  std::map<std::array<std::uint8_t, 64>, cuda::event> opened_;
};

}  // namespace pinfold::cuda_ipc
