// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory regions of an RDMA device, through libibverbs. In a library of its own: `pinfold::verbs`, `-lpinfold-verbs`.
/// `docs/use/rdma.md` has the rules in full. Needs no header of libibverbs.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

struct ibv_context;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;
struct ibv_send_wr;

namespace pinfold {

/// The capabilities of an RDMA device that concern memory regions.
struct verbs_capabilities {
  std::size_t max_mr_bytes = 0;            ///< largest region (`max_mr_size`)
  std::uint32_t max_mr = 0;                ///< largest number of regions on the device, all processes together
  bool atomics = false;                    ///< peers can do atomic operations on memory registered with the device
  bool on_demand_paging = false;           ///< regions whose pages need not be pinned
  bool implicit_on_demand_paging = false;  ///< one region for the whole address space
};

/// Queries the device. Thread-safe. Errors: `invalid_argument` (no context), `driver_error`.
[[nodiscard]] PINFOLD_EXPORT result<verbs_capabilities> verbs_capabilities_of(::ibv_context* context) noexcept;

/// Pinned pages, or on-demand paging. Registrations pin by default: experience with on-demand paging is mixed, because
/// each page fault of the device costs far more than a cache miss.
enum class verbs_paging : std::uint8_t {
  pinned,     ///< every registration pins its pages
  on_demand,  ///< each registration is a region without pinned pages, which follows the page tables and is never stale
  implicit,   ///< one region, local access only, for the whole address space: `open` and `close` cost nothing
};

/// The position of memory in a dma-buf. The registrar closes the descriptor.
struct verbs_dma_buf {
  int descriptor;        ///< of the dma-buf
  std::uint64_t offset;  ///< of the memory in it, in bytes
};

/// Options of the registrar.
struct verbs_registrar_options {
  verbs_paging paging = verbs_paging::pinned;  ///< how regions are paged

  /// Let memory windows be bound to the regions (IBV_ACCESS_MW_BIND): see `verbs_window`.
  bool windows = false;

  /// With `verbs_paging::on_demand`: prefetch each region, to be written if it may be, before `open` returns. If the
  /// device refuses that, `open` returns its error and registers nothing.
  bool prefetch_on_open = false;

  /// Let peers' writes arrive in any order (IBV_ACCESS_RELAXED_ORDERING), which some hosts need for full speed. Do not
  /// poll for the last byte then: only a completion says that all bytes are there. No effect if the device does not
  /// know it.
  bool relaxed_ordering = false;

  /// Called for every registration: returns the dma-buf of device memory, or nothing for memory of the process. The
  /// registrar may call it on any thread; it must not throw. No monitor sees device memory go: tell the cache
  /// (`invalidate`), or do not keep the registration (`bypass`). Device memory is never paged on demand. Not usable
  /// with `verbs_paging::implicit`.
  std::function<std::optional<verbs_dma_buf>(const range&)> dma_buf_of{};

  /// As `dma_buf_of`, for a function that may fail: `open` then returns its error, and registers nothing. Only one of
  /// both may be given. `shared_dma_buf::provider` makes such a function.
  std::function<result<std::optional<verbs_dma_buf>>(const range&)> dma_buf_from{};
};

/// How `verbs_registrar::prefetch` prefetches.
enum class verbs_prefetch : std::uint8_t {
  start,    ///< returns at once; the device's driver goes on
  wait,     ///< returns when the pages are there
  present,  ///< returns when the device knows the pages that are there already; causes no page fault
};

/// A registrar of memory with one protection domain. Thread-safe, as libibverbs is.
///
/// The protection domain must outlive the registrar. A lease must outlive the work requests that use its keys, posted
/// here or by a peer. All registrations must be closed before the registrar is destroyed; a cache does that.
///
/// **Access.** `remote_write` and `remote_atomic` imply local write, as the device demands (ibv_reg_mr(3)). Access of
/// peers covers exactly the requested bytes (R24). `remote_atomic` is unsupported if the device has no atomics. With
/// `verbs_paging::implicit` all remote access is unsupported, because it would open all memory to peers.
///
/// `open` errors: those of `check_request`; `out_of_resources` (ENOMEM: RLIMIT_MEMLOCK, the device's table, or memory;
/// the message says which), `invalid_range` (EFAULT: not mapped, or not writable), `unsupported` (EOPNOTSUPP),
/// `not_permitted`, `driver_error` (EIO, ENODEV: the device is gone), `closed` (moved from); those of `dma_buf_from`
/// and, with `prefetch_on_open`, of `prefetch`.
///
/// `close` errors: `in_use_conflict` (EBUSY, or with `windows` EINVAL: a memory window is bound to the region),
/// `driver_error`. If the device is gone, the kernel has closed every region, and `close` succeeds.
class PINFOLD_EXPORT verbs_registrar {
 public:
  static constexpr const char* name = "verbs";  ///< shown in events and dumps
  /// The keys of a region, for `ibv_sge` and for peers. Addresses are ordinary pointers.
  struct registration_type {
    ::ibv_mr* mr;        ///< belongs to the registrar; with `verbs_paging::implicit` all registrations share one
    std::uint32_t lkey;  ///< in `ibv_sge`
    std::uint32_t rkey;  ///< for peers; means nothing without remote access
  };

  /// Makes a registrar. Errors: `invalid_argument` (no protection domain, or both `dma_buf_of` and `dma_buf_from`),
  /// `unsupported` (paging that the device does not have, or a function for dma-bufs with `verbs_paging::implicit`),
  /// `driver_error`, `out_of_resources`.
  [[nodiscard]] static result<verbs_registrar> create(::ibv_pd* domain, verbs_registrar_options options = {}) noexcept;
  verbs_registrar(verbs_registrar&&) noexcept;
  verbs_registrar& operator=(verbs_registrar&&) noexcept;
  ~verbs_registrar();

  /// Returns the limits: whole pages, and what the device has.
  [[nodiscard]] registrar_limits limits() const noexcept;
  /// Registers a memory region.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept;
  /// Deregisters the memory region.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

  /// Makes the device know pages of an on-demand region before it needs them (ibv_advise_mr(3)); with write access in
  /// `access`, for writing. An advice: pages may go again. Errors: `unsupported` (the registrar pins, or the device
  /// cannot do this), `invalid_range` (not inside the registration, not mapped, or not of an on-demand region),
  /// `not_permitted`, `driver_error`, `closed`.
  [[nodiscard]] result<void> prefetch(const registration_type& registration, range memory, access_flags access,
                                      verbs_prefetch how = verbs_prefetch::start) noexcept;

  [[nodiscard]] verbs_capabilities capabilities() const noexcept;  ///< of the device, queried at creation

 private:
  [[nodiscard]] result<registration_type> opened(::ibv_mr* made, const range& memory, access_flags access,
                                                 bool paged) noexcept;

  struct state;
  explicit verbs_registrar(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// A memory window of type 2: a key for a part of a registration that can be withdrawn while the registration stays
/// open. The window can be reached through one queue pair only. The registrar needs `verbs_registrar_options::windows`.
///
/// Withdraw the window before the last lease on the registration is released: the device cannot close a region that has
/// one (`in_use_conflict`), so the cache keeps it and tries again. Copies share one window; one thread at a time may
/// use them. The last copy withdraws the window.
class PINFOLD_EXPORT verbs_window {
 public:
  /// Posts a request on the queue pair, and returns when it has completed.
  using post_function = std::function<result<void>(::ibv_qp*, ::ibv_send_wr&)>;

  /// Binds a window to memory inside the registration. `access`: that of peers; `remote_write` and
  /// `remote_atomic` need a registration with `local_write`. By default the request is posted without a completion: the
  /// device binds before it executes what is posted on the pair later, such as the message that takes the key to the
  /// peer, and a bind that fails puts the pair into its error state. The pair has to be connected, in the domain of the
  /// registration, and without `sq_sig_all`.
  ///
  /// Errors: `invalid_argument` (no pair, no registration, no access of peers), `invalid_range` (not inside the
  /// registration), `unsupported` (the device has no windows), `out_of_resources`, `driver_error`, and what `post`
  /// returns.
  [[nodiscard]] static result<verbs_window> bind(::ibv_qp* pair, const verbs_registrar::registration_type& registration,
                                                 range memory, access_flags access, post_function post = {}) noexcept;

  /// Returns the key for the peer.
  [[nodiscard]] std::uint32_t rkey() const noexcept;

  /// Frees the window: from the return on, the device refuses its key. Does nothing if that was done before. Errors:
  /// `driver_error`, `closed` (in a child of fork); the window is unchanged then.
  [[nodiscard]] result<void> withdraw() noexcept;

 private:
  struct state;
  explicit verbs_window(std::shared_ptr<state> made) noexcept;
  std::shared_ptr<state> state_;
};

/// The mechanism that makes `fork` safe for registered memory (R37).
enum class verbs_fork : std::uint8_t {
  kernel_copies,  ///< no setup is needed: the child gets copies of pinned pages (Linux 5.12)
  not_inherited,  ///< ibv_fork_init(3) is in force: the child has neither the pages nor other data on them
};

/// Makes `fork` safe, by ibv_fork_init(3) if the kernel does not. Call it before the first registration, and only in a
/// program that forks: with `not_inherited` the child loses all data that shares a page with a buffer. Not thread-safe.
/// Errors: `unsupported` (too late, or an old kernel), `out_of_resources`, `driver_error`.
[[nodiscard]] PINFOLD_EXPORT result<verbs_fork> make_verbs_fork_safe() noexcept;

}  // namespace pinfold
