// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The events of other processes that an importer has opened.
#pragma once

#include "cuda/context.hpp"

#include <pinfold/importers/cuda_ipc.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace pinfold::cuda_ipc {

/// Keeps at most `most` events that no call is using, the ones that were waited for last: no call tells that an
/// exporter and its events have ended. Thread-safe.
class event_table {
 public:
  static constexpr std::size_t most = 64;

  /// Makes the stream wait for the event, and opens the event first if needed.
  [[nodiscard]] result<void> wait(const cuda::primary_context& in, const cuda_ipc_event& shared,
                                  cuda::stream stream) noexcept;

  /// Destroys all events. No other call may run.
  void destroy_all(const cuda::driver_table& calls) noexcept;

 private:
  struct opened_event {
    cuda::event event = nullptr;
    std::uint64_t last_use = 0;
    std::size_t callers = 0;  ///< threads that make a stream wait for it: until then it is not destroyed
  };

  /// Counts the caller in `found`, unless it fails.
  [[nodiscard]] cuda::status find_or_open(const cuda::driver_table& calls, const cuda_ipc_event& shared,
                                          opened_event*& found);
  /// Destroys the event that was waited for longest ago. Returns false if all are in use. The caller holds the mutex.
  [[nodiscard]] bool destroy_oldest(const cuda::driver_table& calls) noexcept;

  std::mutex mutex_;
  std::map<std::array<std::uint8_t, 64>, opened_event> opened_;
  std::uint64_t uses_ = 0;
};

}  // namespace pinfold::cuda_ipc
