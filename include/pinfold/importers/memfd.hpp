// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory shared between processes through memfd: a substitute for GPU memory that works on every Linux.
///
/// The exporter owns buffers, each in a memfd of its own, and makes small handles for them. The importer fetches the
/// descriptor that a handle names, maps it, and keeps CUDA's rule: it refuses (`already_mapped`) an open that overlaps
/// an open mapping of the same exporter, and a second open of the same handle.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/handle.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>
#include <pinfold/release/retirement.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace pinfold {

/// The access of importers to a buffer.
enum class memfd_access : std::uint8_t {
  read_only,   ///< sealed against all writes but the exporter's own, and against punching holes
  read_write,  ///< peers may write, and punch holes: importers can then see zeros, but never a fault
};

/// The way an importer fetches the descriptor behind a handle.
enum class memfd_via : std::uint8_t {
  automatic,  ///< `pidfd`, or `scm` if that is not permitted
  pidfd,      ///< `pidfd_getfd(2)`: needs the right to ptrace the exporter (same user, and Yama's `ptrace_scope`)
  scm,        ///< SCM_RIGHTS over the exporter's Unix socket: needs `memfd_exporter_options::serve`
};

/// A handle that names one buffer for ever: plain bytes, which may be sent to peers in any way. Equal bytes mean the
/// same buffer, and no two buffers have equal bytes, because the exporter's number is random and a serial is never
/// reused.
struct memfd_handle {
  std::uint64_t magic = 0;       ///< kind and version
  std::uint64_t exporter = 0;    ///< random number of the exporter object
  std::uint64_t serial = 0;      ///< counts the exporter's buffers
  std::uint64_t base = 0;        ///< address in the exporter
  std::uint64_t size = 0;        ///< bytes, a multiple of the page size
  std::uint64_t inode = 0;       ///< the memfd's inode number, to recognize the file
  std::uint64_t start_time = 0;  ///< of the exporting process, in clock ticks since boot (proc(5), field 22)
  std::int32_t pid = 0;          ///< of the exporting process, in its own PID namespace
  std::int32_t descriptor = -1;  ///< in the exporting process
  std::uint16_t access = 0;      ///< a `memfd_access`
  std::uint16_t host = 0;        ///< identifies the host's boot; 0: unknown, as in version 1 of the layout
  std::uint32_t check = 0;       ///< checksum of all the above

  /// Returns the buffer's addresses in the exporter.
  [[nodiscard]] range allocation() const noexcept { return {base, base + size}; }
  friend bool operator==(const memfd_handle&, const memfd_handle&) noexcept = default;
};

/// Returns what an importer of the handle needs.
[[nodiscard]] constexpr handle_needs needs(const memfd_handle& /*handle*/) noexcept {
  return handle_needs::same_host | handle_needs::exporter_runs | handle_needs::same_user;
}

/// Options of the exporter.
struct memfd_exporter_options {
  memfd_access access = memfd_access::read_only;  ///< of importers
  bool serve = false;  ///< run a thread that hands descriptors to peers of the same user over a Unix socket
  /// Run a thread that knows which importers hold a buffer and asks them to let it go (`docs/use/release-protocol.md`).
  bool release = false;
  /// Bytes of retired buffers that are kept alive after their deadline because importers hold them. Above it, the
  /// oldest are freed; their importers keep the pages. `unlimited`: no limit.
  std::size_t limbo_bytes = default_limbo_bytes;
};

/// One exported buffer. Move-only. Its destructor unmaps and closes the memory, even if peers still have it mapped:
/// they keep the old bytes, and their next open of the handle fails with `stale_handle`.
class PINFOLD_EXPORT memfd_buffer {
 public:
  memfd_buffer() noexcept;
  memfd_buffer(memfd_buffer&& other) noexcept;
  memfd_buffer& operator=(memfd_buffer&& other) noexcept;
  ~memfd_buffer();

  [[nodiscard]] std::byte* data() const noexcept;             ///< null when moved from
  [[nodiscard]] std::size_t size() const noexcept;            ///< the requested bytes, rounded up to whole pages
  [[nodiscard]] const memfd_handle& handle() const noexcept;  ///< the handle to send to peers
  [[nodiscard]] int descriptor() const noexcept;              ///< the memfd; -1 when moved from

 private:
  friend class memfd_exporter;
  struct state;
  explicit memfd_buffer(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// Memory that grows: an address range in which segments are added and removed one by one, like the expandable segments
/// of a GPU memory allocator. Each segment is a buffer with a memfd and a handle of its own.
/// Addresses without a segment have no memory: an access there is a fault. Move-only; threads may call all other
/// members at the same time. The destructor unmaps all. `docs/use/segments.md` has an example.
class PINFOLD_EXPORT memfd_segments {
 public:
  memfd_segments() noexcept;
  memfd_segments(memfd_segments&& other) noexcept;
  memfd_segments& operator=(memfd_segments&& other) noexcept;
  ~memfd_segments();

  [[nodiscard]] std::byte* data() const noexcept;       ///< the first address; null when moved from
  [[nodiscard]] std::size_t size() const noexcept;      ///< bytes of the address range
  [[nodiscard]] memory_window window() const noexcept;  ///< the address range, to send to peers
  [[nodiscard]] std::size_t segments() const noexcept;  ///< the number of segments now

  /// Adds a zeroed segment of `bytes` bytes at `offset`, both whole pages, and returns its handle. Errors:
  /// `invalid_range` (not whole pages, or outside the range), `in_use_conflict` (meets a segment), `out_of_resources`,
  /// `unsupported` (in a child that inherited the exporter by fork), `closed` (moved from, or the exporter has ended).
  [[nodiscard]] result<memfd_handle> add(std::size_t offset, std::size_t bytes) noexcept;

  /// Adds a segment behind the last one, of `bytes` rounded up to whole pages. Errors as `add`.
  [[nodiscard]] result<memfd_handle> grow(std::size_t bytes) noexcept;

  /// Removes all segments in the `bytes` bytes at `offset`, and leaves the others untouched. Importers that have a
  /// removed segment open keep its bytes; their next open of its handle fails with `stale_handle`. Errors:
  /// `invalid_range` (outside the range, without a segment, or cuts one), `out_of_resources`, `unsupported`, `closed`
  /// (moved from). On an error, nothing is removed.
  [[nodiscard]] result<void> remove(std::size_t offset, std::size_t bytes) noexcept;

  /// Returns the handles of the segments under the `bytes` bytes at `address`, by address. Errors: `invalid_range` (a
  /// byte of them has no segment), `out_of_resources`, `closed` (moved from).
  [[nodiscard]] result<std::vector<memfd_handle>> handles(const void* address, std::size_t bytes) const noexcept;

 private:
  friend class memfd_exporter;
  struct state;
  explicit memfd_segments(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// An exporter of buffers that other processes can import. Thread-safe. Buffers may outlive their exporter: `scm` then
/// stops working for them, `pidfd` still works.
class PINFOLD_EXPORT memfd_exporter {
 public:
  /// Makes an exporter. Errors: `unsupported` (no /proc), `out_of_resources`, and what the system refuses to `serve`.
  [[nodiscard]] static result<memfd_exporter> create(memfd_exporter_options options = {}) noexcept;
  memfd_exporter(memfd_exporter&&) noexcept;
  memfd_exporter& operator=(memfd_exporter&&) noexcept;
  ~memfd_exporter();

  /// Returns a zeroed buffer of `bytes` bytes. A non-null `where` must be a page boundary; the buffer is then exactly
  /// there, or the error is `in_use_conflict` if the range is already mapped. Other errors: `invalid_range`,
  /// `out_of_resources`, `unsupported` (in a child that inherited the exporter by fork), `closed` (moved from).
  [[nodiscard]] result<memfd_buffer> allocate(std::size_t bytes, void* where = nullptr) noexcept;

  /// Returns an address range of `bytes` bytes, rounded up to whole pages, without memory. Errors: `invalid_range`,
  /// `out_of_resources`, `unsupported` (in a child that inherited the exporter by fork), `closed` (moved from).
  [[nodiscard]] result<memfd_segments> reserve(std::size_t bytes) noexcept;

  /// Retires a buffer: lends it to no further importer, asks each importer that holds it to let it go, waits for them
  /// for at most `timeout`, and frees it. If importers hold it then, it is kept alive until the last lets it go or ends
  /// (`limbo_bytes`). Only importers over `releasing_importer` count; others keep the pages, as after a free.
  ///
  /// Errors, which leave the buffer to the caller: `unsupported` (without `release`, or in a forked child),
  /// `invalid_argument` (a buffer of another exporter, or empty), `out_of_resources`, `closed` (moved from). If only
  /// the report cannot be allocated, the error is `out_of_resources`, the buffer is empty, and the retirement goes on.
  [[nodiscard]] result<retire_report> retire(memfd_buffer&& buffer, std::chrono::milliseconds timeout) noexcept;

  /// Begins what `retire` does, and returns a ticket to wait with. Errors: as `retire`.
  [[nodiscard]] result<retirement> begin_retire(memfd_buffer&& buffer, std::chrono::milliseconds timeout) noexcept;

  /// Returns the counts of retirements; all 0 without `release`.
  [[nodiscard]] release_statistics retirements() const noexcept;

  /// Returns the random number that all handles of this exporter contain.
  [[nodiscard]] std::uint64_t id() const noexcept;

 private:
  friend class memfd_segments;
  struct state;
  explicit memfd_exporter(std::shared_ptr<state> made) noexcept;
  std::shared_ptr<state> state_;
};

/// Options of the importer.
struct memfd_importer_options {
  memfd_via via = memfd_via::automatic;           ///< how descriptors are fetched
  memfd_access access = memfd_access::read_only;  ///< how memory is mapped
  /// Refuse memory without SHRINK and GROW seals, which a peer could truncate so that this process gets SIGBUS. For
  /// `read_only`, also refuse memory without a FUTURE_WRITE seal, which any peer could write or punch.
  bool require_seals = true;
  bool populate = false;  ///< fault in all pages at the open: slower opens, no faults at first touch
};

/// An importer that opens handles of `memfd_exporter`. Thread-safe; opens different handles in parallel.
///
/// `open` errors: `peer_gone` (the process ended, or another process has its id now), `stale_handle` (buffer freed or
/// replaced), `already_mapped`, `not_permitted` (ptrace rules, missing seals), `invalid_handle`, `invalid_range` (the
/// file is smaller than the handle says), `out_of_resources`, `unsupported` (also a handle of another host),
/// `timed_out` (the exporter does not answer within 5 s, `scm` only), `closed` (moved from).
class PINFOLD_EXPORT memfd_importer {
 public:
  static constexpr const char* name = "memfd";      ///< shown in events and dumps
  static constexpr bool allows_duplicates = false;  ///< keeps CUDA's rule
  using handle_type = memfd_handle;                 ///< names a buffer
  /// One mapping.
  struct registration_type {
    void* address;           ///< in this process
    std::uint64_t bytes;     ///< mapped
    std::uint64_t exporter;  ///< random number of the exporter object
    std::uint64_t base;      ///< address in the exporter
  };

  /// Makes an importer.
  explicit memfd_importer(memfd_importer_options options = {});
  memfd_importer(memfd_importer&&) noexcept;
  memfd_importer& operator=(memfd_importer&&) noexcept;
  ~memfd_importer();

  /// Returns the handle's allocation. Errors: `invalid_handle`.
  [[nodiscard]] result<range> check(const memfd_handle& handle) const noexcept;
  /// Returns whether `open` could reach the handle's memory now, or why not, without a trace: opens no file of the
  /// exporter and sends it nothing. Errors: `invalid_handle` (another kind, damaged, of a newer release), `unsupported`
  /// (of another host, or the exporter cannot be reached), `peer_gone`, `not_permitted` (another user, ptrace rules,
  /// exported for reading only), `out_of_resources`, `closed` (moved from). Does not tell whether the memory was freed.
  [[nodiscard]] result<void> can_open(const memfd_handle& handle) const noexcept;
  /// Fetches the descriptor and maps the buffer.
  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const memfd_handle& handle) noexcept;
  /// Unmaps the buffer.
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept;

  /// When the process of an exporter ends, calls `to`, on a thread of the library, for each mapping of its memory that
  /// is open or being opened. Covers the last 256 exporters whose process this one can see. Throws `std::bad_alloc`.
  void tell_ends(std::function<void(peer_id peer, range where, const memfd_handle& handle)> to);

  /// Reserves addresses of this process for a window of the exporter. From now on, segments in the window are mapped
  /// at their offset in it, so that neighbours are adjacent. Call it before the first open of a segment in the window.
  /// Returns where the window is. Calling it again with the same window returns the same address. Errors:
  /// `invalid_range` (empty, or not whole pages), `in_use_conflict` (meets an open mapping or another window of the
  /// exporter), `out_of_resources`, `closed` (moved from).
  [[nodiscard]] result<void*> add_window(const memory_window& window) noexcept;
  /// Gives the window's addresses back. Errors: `in_use_conflict` (something is mapped in it), `invalid_argument`
  /// (there is no such window), `closed` (moved from).
  [[nodiscard]] result<void> remove_window(const memory_window& window) noexcept;

  /// Returns the number of open mappings.
  [[nodiscard]] std::size_t held() const noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Tests with a real child process whether `via` works on this host between processes of one user; the error says why
/// not. Slow (a fork and an exchange): for `pinfold info` and tests.
[[nodiscard]] PINFOLD_EXPORT result<void> probe_memfd(memfd_via via) noexcept;

}  // namespace pinfold
