// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Test controls of the emulated CUDA driver, in addition to the driver's own interface.
///
/// No real driver exports these functions: where `controls_of` finds nothing, the library is not the emulation. Any
/// thread may call them at any time, also before cuInit.
///
/// These environment variables set the same when the library is loaded:
///
/// | variable                     | default         | meaning                                                        |
/// |------------------------------|-----------------|----------------------------------------------------------------|
/// | `EMULATED_CUDA_DEVICES`      | 1               | 0 to 4; with 0, cuInit says no_device                          |
/// | `EMULATED_CUDA_MEMORY_MIB`   | 1024            | of each device                                                 |
/// | `EMULATED_CUDA_SECOND_OPEN`  | counted         | `counted`, `exclusive` or `refused`: `second_open` below       |
/// | `EMULATED_CUDA_MAX_MAPPINGS` | none            | imported mappings open at a time, then out_of_memory           |
/// | `EMULATED_CUDA_PEERS`        | 1               | 0: no device may open the memory of another                    |
/// | `EMULATED_CUDA_FREED`        | 0               | what opening a handle of freed memory says; 0: it opens what   |
/// |                              |                 | lies at its base now, and where nothing does, invalid_value    |
/// | `EMULATED_CUDA_DEAD`         | 400             | what opening a handle of an ended process says                 |
/// | `EMULATED_CUDA_DELAY`        | none            | `cuIpcOpenMemHandle=1000,cuMemFree=20`: microseconds a call    |
/// | `EMULATED_CUDA_FAIL`         | none            | `cuMemAlloc=3:2`: the 3rd call fails with 2; `=3:2:forever`    |
/// | `EMULATED_CUDA_STREAM_DELAY` | 0               | microseconds before each piece of work in a stream             |
#pragma once

#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <optional>
#include <type_traits>

namespace emulated_cuda {

/// Counts for this process since it loaded the library or since `reset`. The last four are current values, which
/// `reset` keeps.
struct counters {
  std::uint64_t opens;          ///< IPC memory handles opened with success
  std::uint64_t closes;         ///< closed with success
  std::uint64_t double_closes;  ///< closes of a pointer that was closed before
  std::uint64_t wrong_closes;   ///< closes of a pointer that was never opened
  std::uint64_t mapped;         ///< mappings made by those opens; an open that only raised a count made none

  std::uint64_t live_mappings;       ///< imported mappings, however often each is opened
  std::uint64_t bytes_open;          ///< of these, as the exporter allocated them
  std::uint64_t allocations;         ///< of device, pool and managed memory
  std::uint64_t host_registrations;  ///< host memory registered now
};

/// The result of opening a handle while the current context has that memory open, or other memory of the exporter at
/// these addresses.
enum class second_open : int {
  counted,    ///< gives the same pointer and counts; other memory is mapped elsewhere: measured with driver 580
  exclusive,  ///< counts, too, but says already_mapped of other memory: reported of older drivers
  refused,    ///< says already_mapped of both
};

inline constexpr std::uint64_t no_limit = UINT64_MAX;

/// Entry points are named with or without their version: "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2".
struct controls {
  /// Zeroes the counters, and undoes the effect of the functions below and of the environment, except for devices.
  void (*reset)();
  void (*read_counters)(counters* into);
  /// Returns how often the entry point was called, failures included; 0 for an unknown one.
  std::uint64_t (*calls)(const char* entry_point);
  /// Makes the `nth` call from now on (1: the next) do nothing and return `code`; all later ones as well if `forever`.
  /// Code 0 cancels that. Returns false for an unknown entry point.
  bool (*fail)(const char* entry_point, std::uint64_t nth, int code, bool forever);
  /// Makes each call sleep before it begins. Returns false for an unknown entry point.
  bool (*delay)(const char* entry_point, unsigned microseconds);
  void (*stream_delay)(unsigned microseconds);
  void (*max_mappings)(std::uint64_t most);
  void (*set_second_open)(second_open rule);
  void (*set_freed)(int code);  ///< as `EMULATED_CUDA_FREED`
};

/// Returns nothing where the library is not the emulated driver. The library stays loaded for good.
inline std::optional<controls> controls_of(void* library) noexcept {
  controls found{};
  bool all = true;
  const auto find = [&](auto*& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    all = all && function != nullptr;
  };
  find(found.reset, "emulated_cuda_reset");
  find(found.read_counters, "emulated_cuda_read_counters");
  find(found.calls, "emulated_cuda_calls");
  find(found.fail, "emulated_cuda_fail");
  find(found.delay, "emulated_cuda_delay");
  find(found.stream_delay, "emulated_cuda_stream_delay");
  find(found.max_mappings, "emulated_cuda_max_mappings");
  find(found.set_second_open, "emulated_cuda_set_second_open");
  find(found.set_freed, "emulated_cuda_set_freed");
  if (!all) return std::nullopt;
  return found;
}

}  // namespace emulated_cuda
