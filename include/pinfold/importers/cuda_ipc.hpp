// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GPU memory shared between processes of one host.
///
/// The exporter makes small handles for memory that the application allocated: by cudaMalloc or cuMemAlloc, with the
/// virtual memory API (cuMemCreate and cuMemMap), or from a pool. The importer maps the memory of a handle on a device
/// of its own process. `docs/use/gpu.md` says what each kind of memory needs.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/handle.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>
#include <pinfold/release/retirement.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace pinfold {

/// The way a piece of GPU memory was allocated, which decides how it is shared.
enum class cuda_memory_kind : std::uint32_t {
  allocation = 1,  ///< cuMemAlloc: shared by the driver's own 64-byte handle
  segments = 2,    ///< cuMemCreate and cuMemMap: adjacent physical segments, shared by descriptors
  pool = 3,        ///< cuMemAllocFromPoolAsync: shared by the pool's descriptor
};

/// A handle that names one allocation for ever: plain bytes, which may be sent to peers in any way. Equal bytes mean
/// the same allocation, and no two allocations have equal bytes, because the driver never reuses a buffer id in one
/// process.
struct cuda_ipc_handle {
  std::uint64_t magic = 0;                ///< kind and version
  std::uint64_t exporter = 0;             ///< random number of the exporter object
  std::uint64_t serial = 0;               ///< counts the allocations that the exporter shares
  std::uint64_t base = 0;                 ///< address in the exporter
  std::uint64_t size = 0;                 ///< bytes of the whole allocation
  std::uint64_t buffer_id = 0;            ///< CU_POINTER_ATTRIBUTE_BUFFER_ID; for segments, of the first segment
  std::uint64_t start_time = 0;           ///< of the exporting process, in clock ticks since boot (proc(5), field 22)
  std::int32_t pid = 0;                   ///< of the exporting process, in its own PID namespace
  std::uint32_t kind = 0;                 ///< a `cuda_memory_kind`
  std::array<std::uint8_t, 16> device{};  ///< UUID of the memory's device
  std::array<std::uint8_t, 64> memory{};  ///< the driver's handle; zeros for segments
  std::uint64_t pool = 0;                 ///< serial of the pool, or 0
  std::uint32_t host = 0;                 ///< identifies the host's boot; 0: unknown, as in version 1 of the layout
  std::uint32_t check = 0;                ///< checksum of all the above

  /// Returns the allocation's addresses in the exporter.
  [[nodiscard]] range allocation() const noexcept { return {base, base + size}; }
  friend bool operator==(const cuda_ipc_handle&, const cuda_ipc_handle&) noexcept = default;
};

/// Returns what an importer of the handle needs, unless it does not `confirm`.
[[nodiscard]] constexpr handle_needs needs(const cuda_ipc_handle& /*handle*/) noexcept {
  return handle_needs::same_host | handle_needs::exporter_runs | handle_needs::same_user |
         handle_needs::exporter_serves | handle_needs::cuda_driver | handle_needs::device_access;
}

/// An event of another process: plain bytes. All zeros: no event.
struct cuda_ipc_event {
  std::array<std::uint8_t, 64> bytes{};  ///< the driver's handle
  friend bool operator==(const cuda_ipc_event&, const cuda_ipc_event&) noexcept = default;
};

/// All that a peer needs to read from one pointer.
struct cuda_shared {
  cuda_ipc_handle handle;     ///< of the whole allocation
  std::uint64_t address = 0;  ///< the pointer that was shared
  std::uint64_t offset = 0;   ///< offset of that pointer in the allocation, in bytes
  cuda_ipc_event event;       ///< the event to wait for before reading, if the exporter has events
};

/// Options of the exporter.
struct cuda_ipc_exporter_options {
  /// Make one event for each device, which `record` records and importers wait for.
  bool events = false;
  /// Run a thread that knows which importers hold memory and asks them to let it go (`docs/use/release-protocol.md`).
  bool release = false;
  /// Bytes of retired memory that are kept alive after their deadline because importers hold them. Above it, the oldest
  /// are freed; the driver does not define what an importer then reads through a mapping that is still open.
  /// `unlimited`: no limit.
  std::size_t limbo_bytes = default_limbo_bytes;
};

/// An exporter of GPU memory that belongs to the application. Thread-safe. Sharing does not keep memory alive: after
/// the application frees it, the next open of its handle fails with `stale_handle`. Handles can be opened while the
/// exporter lives: importers ask it.
class PINFOLD_EXPORT cuda_ipc_exporter {
 public:
  /// Errors: `unsupported` (no CUDA driver, or no /proc), `out_of_resources`.
  [[nodiscard]] static result<cuda_ipc_exporter> create(cuda_ipc_exporter_options options = {}) noexcept;
  cuda_ipc_exporter(cuda_ipc_exporter&&) noexcept;
  cuda_ipc_exporter& operator=(cuda_ipc_exporter&&) noexcept;
  ~cuda_ipc_exporter();

  /// Returns the handle of the whole allocation around the `bytes` bytes at `pointer` (a `void*` or CUdeviceptr). The
  /// handle is the same each time, until the memory is freed. Of memory that is mapped in segments, shares the segments
  /// that the bytes touch.
  ///
  /// Errors: `invalid_argument` (not memory that CUDA knows), `invalid_range` (ends inside the bytes), `unsupported`
  /// (memory that cannot be shared; the message says which kind and why), `out_of_resources`, `closed` (moved from),
  /// and the driver's other errors.
  [[nodiscard]] result<cuda_shared> share(const void* pointer, std::size_t bytes = 1) noexcept;
  /// As above.
  [[nodiscard]] result<cuda_shared> share(std::uint64_t pointer, std::size_t bytes = 1) noexcept;

  /// Shares the `bytes` bytes at `pointer` segment by segment: returns one handle for each physical segment that they
  /// touch, by address. A segment's handle is the same each time, until the segment is unmapped, whatever happens to
  /// its neighbours: after the application has added or removed segments, only their handles are new. Of memory that is
  /// not mapped in segments, returns one handle. Errors as `share`.
  [[nodiscard]] result<std::vector<cuda_shared>> share_segments(const void* pointer, std::size_t bytes) noexcept;
  /// As above.
  [[nodiscard]] result<std::vector<cuda_shared>> share_segments(std::uint64_t pointer, std::size_t bytes) noexcept;

  /// Returns the window over the address range that the application has reserved (cuMemAddressReserve), to send to
  /// peers; a window of another exporter, which no handle is in, if this one was moved from.
  [[nodiscard]] memory_window window(std::uint64_t reserved, std::size_t bytes) const noexcept;

  /// Records the device's event in `stream` (a CUstream; null: the default stream): an importer that waits for the
  /// event waits for the work that was put into the stream before. There is one event for each device, and the last
  /// record counts: if several streams write, order their work before the recorded stream. Returns `unsupported`
  /// without `events`.
  [[nodiscard]] result<void> record(const cuda_shared& shared, void* stream = nullptr) noexcept;

  /// Begins the retirement of the shared memory around `pointer`: asks each importer that holds it to let it go, and
  /// calls `free` once none does, or for room (`limbo_bytes`), or at the exporter's end. `free` is called once, on the
  /// exporter's own thread or that of its end, without a current context; it frees the memory and returns the driver's
  /// error, which the report then has. Do not share the memory again, nor free it otherwise. Only importers over
  /// `releasing_importer` count.
  ///
  /// Errors, after which `free` is not called: `unsupported` (without `release`; in a forked child; memory of which a
  /// part is shared by another handle, also of another exporter of this process, or is held by importers of an
  /// announced handle), `invalid_argument` (memory that is not shared, or is retired; no `free`), `out_of_resources`,
  /// `closed` (moved from).
  [[nodiscard]] result<retirement> begin_retire(const void* pointer, std::chrono::milliseconds timeout,
                                                std::function<result<void>()> free) noexcept;

  /// Retires as `begin_retire` does, and waits for at most `timeout`. Errors: as `begin_retire`; also
  /// `out_of_resources` if only the report cannot be allocated: the retirement then goes on, and `retirements` counts
  /// it.
  [[nodiscard]] result<retire_report> retire(const void* pointer, std::chrono::milliseconds timeout,
                                             std::function<result<void>()> free) noexcept;

  /// Announces that the program is about to free the `bytes` bytes at `pointer`, or the allocation around it. Call it
  /// before cuMemFree, cuMemFreeAsync or cuMemUnmap; the CUDA adapter calls it for programs that run over it. All
  /// exporters of this process forget what they shared there, so that its handles are stale at once. Exporters with
  /// `release` ask the importers to let the memory go, and wait for their answers for at most `timeout`: no acquire of
  /// an importer returns the memory once it has answered. Returns the number of importers that still hold the memory:
  /// they have leases on it, or did not answer; call it again, before the free, to learn how many still do. Does
  /// nothing in a forked child. Errors: `invalid_range`, `out_of_resources` (some importers were not asked).
  [[nodiscard]] static result<std::size_t> announce_free(std::uint64_t pointer, std::size_t bytes,
                                                         std::chrono::milliseconds timeout) noexcept;

  /// Returns the counts of retirements, of announced frees too; all 0 without `release`.
  [[nodiscard]] release_statistics retirements() const noexcept;

 private:
  struct state;
  explicit cuda_ipc_exporter(std::shared_ptr<state> made) noexcept;
  std::shared_ptr<state> state_;
};

/// Options of the importer.
struct cuda_ipc_importer_options {
  int device = 0;  ///< ordinal, in this process, of the device that memory is mapped on
  /// After each open by the driver, ask the exporter whether it still has the memory that the handle names: for freed
  /// memory the driver opens whatever lies at its base now, without an error. Set it to false only for exporters that
  /// this process cannot reach (another user, another network namespace); a handle of freed memory may then map other
  /// memory.
  bool confirm = true;
};

/// An importer that opens handles of `cuda_ipc_exporter`. Thread-safe; opens different handles in parallel. All
/// importers of a process share one table of open mappings, so that the driver never opens a handle twice, whether it
/// would count a second open or refuse it.
///
/// The device's primary context, which the CUDA runtime uses too, is current during each driver call. The importer
/// restores the previous context afterwards.
///
/// `open` errors: `peer_gone` (process ended), `stale_handle` (memory freed or replaced), `already_mapped`,
/// `out_of_resources`, `invalid_handle`, `unsupported` (no driver; devices that cannot reach each other; memory of this
/// process itself, which needs no import; a forked child), `not_permitted`, `driver_error`, `closed` (moved from).
class PINFOLD_EXPORT cuda_ipc_importer {
 public:
  static constexpr const char* name = "cuda_ipc";  ///< shown in events and dumps
  static constexpr bool allows_duplicates = true;  ///< by the table of open mappings
  using handle_type = cuda_ipc_handle;             ///< names an allocation
  /// One open.
  struct registration_type {
    std::uint64_t address;  ///< CUdeviceptr
    std::uint64_t bytes;    ///< mapped
    std::uint64_t number;   ///< number of this open, never reused
  };

  /// Does not touch the driver; `open` reports a driver that is missing or broken.
  explicit cuda_ipc_importer(cuda_ipc_importer_options options = {});
  cuda_ipc_importer(cuda_ipc_importer&&) noexcept;
  cuda_ipc_importer& operator=(cuda_ipc_importer&&) noexcept;
  ~cuda_ipc_importer();  ///< closes what it has open

  /// Returns the handle's allocation. Errors: `invalid_handle`.
  [[nodiscard]] result<range> check(const cuda_ipc_handle& handle) const noexcept;
  /// Returns whether `open` could reach the handle's memory now, or why not. Makes no context and opens nothing: only
  /// loads the driver, as the first use of it does, and asks it for its devices. Errors: `invalid_handle` (another
  /// kind, damaged, of a newer release), `unsupported` (of another host; of this process itself; no driver; the
  /// memory's device is hidden, or this device cannot reach it; the exporter does not serve), `invalid_argument` (no
  /// such device), `peer_gone`, `not_permitted` (another user), `closed` (moved from), and the driver's other errors.
  /// Does not tell whether the memory was freed.
  [[nodiscard]] result<void> can_open(const cuda_ipc_handle& handle) const noexcept;
  /// Maps the memory of the handle.
  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const cuda_ipc_handle& handle) noexcept;
  /// Succeeds if the mapping's context is gone: nothing is left to close.
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept;

  /// Makes `stream` (a CUstream of the importer's device; null: the default stream) wait for the exporter's event. Does
  /// nothing if `shared` has no event. Keeps the 64 events open that were waited for last.
  [[nodiscard]] result<void> wait(const cuda_shared& shared, void* stream = nullptr) noexcept;

  /// When the process of an exporter ends, calls `to`, on a thread of the library, for each mapping of its memory that
  /// is open or being opened. Covers the last 256 exporters whose process this one can see. Throws `std::bad_alloc`.
  void tell_ends(std::function<void(peer_id peer, range where, const cuda_ipc_handle& handle)> to);

  /// Reserves addresses of the importer's device for a window of the exporter. From now on, segments in the window are
  /// mapped at their offset in it, so that neighbours are adjacent. Segments that are open already stay where they are.
  /// Returns where the window is. Calling it again with the same window returns the same address. Errors:
  /// `invalid_range` (empty, or no multiple of the device's granularity), `in_use_conflict` (meets another window of
  /// the exporter), `unsupported` (no driver, no virtual memory management, a forked child), `out_of_resources`,
  /// `closed` (moved from), and the driver's other errors.
  [[nodiscard]] result<std::uint64_t> add_window(const memory_window& window) noexcept;
  /// Gives the window's addresses back. Errors: `in_use_conflict` (something is mapped in it), `invalid_argument`
  /// (there is no such window), `closed` (moved from), and the driver's errors: the window is then still there.
  [[nodiscard]] result<void> remove_window(const memory_window& window) noexcept;

  /// Returns the number of open mappings.
  [[nodiscard]] std::size_t held() const noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
