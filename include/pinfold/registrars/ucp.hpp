// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that UCX maps, through the public `ucp_mem_map` of any version. In a library of its own: `pinfold::ucp`,
/// `-lpinfold-ucp`. Needs no header of UCX.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <cstddef>

struct ucp_context;
struct ucp_mem;

namespace pinfold {

/// A registrar of memory with one UCP context, which must outlive it.
///
/// UCX's functions are called on many threads at once: make the context with `mt_workers_shared`, or set
/// `cache_options::serial`. Read the context's configuration with `UCX_RCACHE_ENABLE=n`, so that UCX keeps no
/// registrations of its own below the cache. A lease must outlive the operations that use its registration, of this
/// process or of a peer.
///
/// **Access.** UCX has no flag for peers' atomics: `remote_atomic` lets peers read and write. Access of peers covers
/// exactly the requested bytes (R24).
///
/// `open` errors: those of `check_request`; `out_of_resources` (UCS_ERR_NO_MEMORY, UCS_ERR_NO_RESOURCE),
/// `invalid_range` (UCS_ERR_INVALID_ADDR), `unsupported`, `driver_error`. `native` is UCX's status, negative.
class PINFOLD_EXPORT ucp_registrar {
 public:
  static constexpr const char* name = "ucp";  ///< shown in events and dumps
  /// What UCX made of the memory.
  struct registration_type {
    ::ucp_mem* memory;      ///< a `ucp_mem_h`, for `ucp_request_param_t::memh`; belongs to the registrar
    const void* key;        ///< the packed key, to be copied to peers, which call `ucp_ep_rkey_unpack`
    std::size_t key_bytes;  ///< its length
  };

  /// Makes a registrar. Errors: `invalid_argument` (no context).
  [[nodiscard]] static result<ucp_registrar> create(::ucp_context* context) noexcept;

  /// Returns the limits: whole pages.
  [[nodiscard]] registrar_limits limits() const noexcept;
  /// Maps the memory, and packs its key.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept;
  /// Unmaps the memory.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

 private:
  explicit ucp_registrar(::ucp_context* context) noexcept : context_(context) {}
  ::ucp_context* context_;
};

}  // namespace pinfold
