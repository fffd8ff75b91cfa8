// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GPU memory shared between processes of one host.
///
/// The exporter makes small handles of memory that the application allocated, by cudaMalloc or cuMemAlloc, with the
/// virtual memory API (cuMemCreate and cuMemMap), or from a pool. The importer maps what a handle stands for on a
/// device of its own process. `docs/gpu.md` says what each kind of memory needs.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pinfold {

/// How a piece of GPU memory was allocated, and so how it is shared.
enum class cuda_memory_kind : std::uint32_t {
  allocation = 1,  ///< cuMemAlloc: by the driver's own 64-byte handle
  segments = 2,    ///< cuMemCreate and cuMemMap: physical segments side by side, by descriptors
  pool = 3,        ///< cuMemAllocFromPoolAsync: by the pool's descriptor
};

/// Names one allocation for ever: plain bytes, to be sent to peers in any way. Equal bytes mean the same allocation,
/// and no two allocations have equal bytes, for the driver never gives a buffer id twice in one process.
struct cuda_ipc_handle {
  std::uint64_t magic = 0;                ///< kind and version
  std::uint64_t exporter = 0;             ///< random number of the exporter object
  std::uint64_t serial = 0;               ///< counts what the exporter shares
  std::uint64_t base = 0;                 ///< address in the exporter
  std::uint64_t size = 0;                 ///< bytes of the whole allocation
  std::uint64_t buffer_id = 0;            ///< CU_POINTER_ATTRIBUTE_BUFFER_ID; of segments, of the first
  std::uint64_t start_time = 0;           ///< of the exporting process, in clock ticks since boot (proc(5), field 22)
  std::int32_t pid = 0;                   ///< of the exporting process, in its own PID namespace
  std::uint32_t kind = 0;                 ///< a `cuda_memory_kind`
  std::array<std::uint8_t, 16> device{};  ///< UUID of the device that has the memory
  std::array<std::uint8_t, 64> memory{};  ///< what the driver gave for it; of segments, zeros
  std::uint64_t pool = 0;                 ///< serial of the pool, or 0
  std::uint32_t reserved = 0;
  std::uint32_t check = 0;  ///< checksum of all the above

  [[nodiscard]] range allocation() const noexcept { return {base, base + size}; }
  friend bool operator==(const cuda_ipc_handle&, const cuda_ipc_handle&) noexcept = default;
};

/// An event of another process: plain bytes. All zeros: none.
struct cuda_ipc_event {
  std::array<std::uint8_t, 64> bytes{};
  friend bool operator==(const cuda_ipc_event&, const cuda_ipc_event&) noexcept = default;
};

/// What a peer has to be sent to read from one pointer.
struct cuda_shared {
  cuda_ipc_handle handle;     ///< of the whole allocation
  std::uint64_t address = 0;  ///< the pointer that was shared
  std::uint64_t offset = 0;   ///< where that is in the allocation, in bytes
  cuda_ipc_event event;       ///< to be waited for before reading, if the exporter has events
};

struct cuda_ipc_exporter_options {
  /// Have one event for each device, which `record` records and importers wait for.
  bool events = false;
};

/// Shares GPU memory that belongs to the application. Thread-safe. Nothing is kept alive by sharing it: when the
/// application frees memory, peers' next open of its handle fails with `stale_handle`.
class PINFOLD_EXPORT cuda_ipc_exporter {
 public:
  /// Errors: `unsupported` (no CUDA driver, or no /proc), `out_of_resources`.
  [[nodiscard]] static result<cuda_ipc_exporter> create(cuda_ipc_exporter_options options = {}) noexcept;
  cuda_ipc_exporter(cuda_ipc_exporter&&) noexcept;
  cuda_ipc_exporter& operator=(cuda_ipc_exporter&&) noexcept;
  ~cuda_ipc_exporter();

  /// The handle of the whole allocation that the `bytes` bytes at `pointer` (a `void*` or CUdeviceptr) lie in: the same
  /// each time, until the memory is freed. Memory that was mapped in segments is shared as those that the bytes touch.
  ///
  /// Errors: `invalid_argument` (not memory that CUDA knows), `invalid_range` (ends inside the bytes), `unsupported`
  /// (memory that cannot be shared; the sentence says which kind and why), `out_of_resources`, `closed` (moved from),
  /// and what the driver refuses.
  [[nodiscard]] result<cuda_shared> share(const void* pointer, std::size_t bytes = 1) noexcept;
  [[nodiscard]] result<cuda_shared> share(std::uint64_t pointer, std::size_t bytes = 1) noexcept;

  /// Records the device's event in `stream` (a CUstream; null: the default stream): importers that wait for it wait
  /// for what was put into the stream before. There is one event for each device, and the last record counts: what is
  /// written in several streams has to be ordered before one of them. `unsupported` without `events`.
  [[nodiscard]] result<void> record(const cuda_shared& shared, void* stream = nullptr) noexcept;

 private:
  struct state;
  explicit cuda_ipc_exporter(std::shared_ptr<state> made) noexcept;
  std::shared_ptr<state> state_;
};

struct cuda_ipc_importer_options {
  int device = 0;  ///< where memory is mapped: the ordinal of a device in this process
};

/// Opens handles of `cuda_ipc_exporter`. Thread-safe; different handles are opened in parallel. All importers of a
/// process share one table of what is open, so that no handle is opened twice whether the driver would count that or
/// refuse it.
///
/// The device's primary context, the one of the CUDA runtime, is current during each call of the driver, and what was
/// current before is so again afterwards.
///
/// `open` errors: `peer_gone` (process ended), `stale_handle` (memory freed or replaced), `already_mapped`,
/// `out_of_resources`, `invalid_handle`, `unsupported` (no driver; devices that cannot reach each other; memory of this
/// very process, which needs no import; a forked child), `not_permitted`, `driver_error`, `closed` (moved from).
class PINFOLD_EXPORT cuda_ipc_importer {
 public:
  static constexpr const char* name = "cuda_ipc";
  static constexpr bool allows_duplicates = true;
  using handle_type = cuda_ipc_handle;
  struct mapping_type {
    std::uint64_t address;  ///< CUdeviceptr
    std::uint64_t bytes;
    std::uint64_t number;  ///< of this open, never given again
  };

  /// Does not touch the driver: what is wrong with that, `open` tells.
  explicit cuda_ipc_importer(cuda_ipc_importer_options options = {});
  cuda_ipc_importer(cuda_ipc_importer&&) noexcept;
  cuda_ipc_importer& operator=(cuda_ipc_importer&&) noexcept;
  ~cuda_ipc_importer();  ///< closes what it has open

  [[nodiscard]] result<range> check(const cuda_ipc_handle& handle) const noexcept;
  [[nodiscard]] result<imported<mapping_type>> open(peer_id peer, const cuda_ipc_handle& handle) noexcept;
  /// Of a mapping whose context is gone nothing is left to close: that is a success.
  [[nodiscard]] result<void> close(const mapping_type& mapping) noexcept;

  /// Has `stream` (a CUstream of the importer's device; null: the default stream) wait for the exporter's event. Does
  /// nothing when `shared` has none. Opened events are kept until the importer goes.
  [[nodiscard]] result<void> wait(const cuda_shared& shared, void* stream = nullptr) noexcept;

  /// How many mappings are open now.
  [[nodiscard]] std::size_t held() const noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
