// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory regions of an RDMA device, through libibverbs. In a library of its own: `pinfold::verbs`, `-lpinfold-verbs`.
/// `docs/rdma.md` has the rules in full. Needs no header of libibverbs.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/rights.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

struct ibv_context;
struct ibv_mr;
struct ibv_pd;

namespace pinfold {

/// What an RDMA device says of itself, as far as memory regions go.
struct verbs_capabilities {
  std::size_t max_mr_bytes = 0;   ///< largest region (`max_mr_size`)
  std::uint32_t max_mr = 0;       ///< how many regions the device has room for, those of all processes together
  bool atomics = false;           ///< peers can do atomic operations on its memory
  bool on_demand_paging = false;  ///< regions whose pages need not be pinned
  bool implicit_on_demand_paging = false;  ///< one region for the whole address space
};

/// Asks the device. Thread-safe. Errors: `invalid_argument` (no context), `driver_error`.
[[nodiscard]] PINFOLD_EXPORT result<verbs_capabilities> verbs_capabilities_of(::ibv_context* context) noexcept;

/// Whether pages are pinned. Off by default: practice with paging on demand is mixed, as each page fault of the device
/// costs far more than a cache's miss.
enum class verbs_paging : std::uint8_t {
  pinned,     ///< every registration pins its pages
  on_demand,  ///< each registration is a region without pinned pages: it follows the page tables, and is never stale
  implicit,   ///< one region, local rights only, for the whole address space: `open` and `close` cost nothing
};

/// Where in a dma-buf some memory lies. The registrar closes the descriptor.
struct verbs_dma_buf {
  int descriptor;
  std::uint64_t offset;
};

struct verbs_registrar_options {
  verbs_paging paging = verbs_paging::pinned;

  /// Writes of peers may arrive in any order (IBV_ACCESS_RELAXED_ORDERING), which some hosts need for full speed. Do
  /// not poll for the last byte then: only a completion says that all is there. Where it is unknown it does nothing.
  bool relaxed_ordering = false;

  /// Asked for every registration: whether the memory belongs to a device and is reached through a dma-buf. Nothing:
  /// memory of the process. May be called on any thread; must not throw. No monitor sees such memory go: tell the cache
  /// (`invalidate`), or do not keep (`bypass`). Such memory is never paged on demand; not with
  /// `verbs_paging::implicit`.
  std::function<std::optional<verbs_dma_buf>(const range&)> dma_buf_of{};
};

/// Registers memory with one protection domain. Thread-safe, as libibverbs is.
///
/// The protection domain must outlive the registrar, and a lease the work requests that use its keys, posted here or by
/// a peer. Close all registrations before the registrar goes; a cache does.
///
/// **Rights.** `remote_write` and `remote_atomic` imply local write, as the device demands (ibv_reg_mr(3)). Rights of
/// peers are to exactly the bytes that were asked for (R24). `remote_atomic` is unsupported where the device has no
/// atomics; every remote right with `verbs_paging::implicit`, as peers would be let into all memory.
///
/// `open` errors: those of `check_request`; `out_of_resources` (ENOMEM: RLIMIT_MEMLOCK, the device's table, or memory;
/// the message says which), `invalid_range` (EFAULT: not mapped, or not writable), `unsupported` (EOPNOTSUPP),
/// `not_permitted`, `driver_error` (EIO, ENODEV: the device is gone). One that was moved from says `closed`.
///
/// `close` errors: `in_use_conflict` (EBUSY: a memory window is bound to it), `driver_error`. When the device is gone
/// the kernel has closed everything, and `close` succeeds.
class PINFOLD_EXPORT verbs_registrar {
 public:
  static constexpr const char* name = "verbs";
  /// For `ibv_sge` and for peers. Addresses are the program's own.
  struct registration_type {
    ::ibv_mr* mr;        ///< belongs to the registrar; with `verbs_paging::implicit` the one for all
    std::uint32_t lkey;  ///< in `ibv_sge`
    std::uint32_t rkey;  ///< for peers; means nothing without a remote right
  };

  /// Errors: `invalid_argument` (no protection domain), `unsupported` (paging that the device does not have, or
  /// `dma_buf_of` with `verbs_paging::implicit`), `driver_error`, `out_of_resources`.
  [[nodiscard]] static result<verbs_registrar> create(::ibv_pd* domain, verbs_registrar_options options = {}) noexcept;
  verbs_registrar(verbs_registrar&&) noexcept;
  verbs_registrar& operator=(verbs_registrar&&) noexcept;
  ~verbs_registrar();

  [[nodiscard]] registrar_limits limits() const noexcept;
  [[nodiscard]] result<registration_type> open(range memory, rights access) noexcept;
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

  [[nodiscard]] verbs_capabilities capabilities() const noexcept;  ///< of the device, as it was at creation

 private:
  struct state;
  explicit verbs_registrar(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// What makes `fork` safe for registered memory (R37).
enum class verbs_fork : std::uint8_t {
  kernel_copies,  ///< nothing need be done: the child gets copies of pinned pages (Linux 5.12)
  not_inherited,  ///< ibv_fork_init(3) is in force: the child does not have the pages, nor what else lies on them
};

/// Makes `fork` safe, by ibv_fork_init(3) where the kernel does not. Call it before anything is registered, and only in
/// a program that forks: `not_inherited` takes from the child all that shares a page with a buffer. Not thread-safe.
/// Errors: `unsupported` (too late, or an old kernel), `out_of_resources`, `driver_error`.
[[nodiscard]] PINFOLD_EXPORT result<verbs_fork> make_verbs_fork_safe() noexcept;

}  // namespace pinfold
