// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory regions of a fabric domain, through libfabric. In a library of its own: `pinfold::libfabric`,
/// `-lpinfold-libfabric`. Needs no header of libfabric. The rules of fi_mr(3) and fi_domain(3) apply.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/limits.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

struct fi_info;
struct fid_domain;
struct fid_ep;
struct fid_mr;

namespace pinfold {

/// The rules of a domain for memory: its `mr_mode`, and what follows from it. Constant while the domain lives.
struct libfabric_rules {
  bool local = false;              ///< FI_MR_LOCAL: local transfers need a `desc` too; otherwise it may be null
  bool virtual_addresses = false;  ///< FI_MR_VIRT_ADDR: peers use addresses, else offsets; see `peer_address`
  bool provider_keys = false;      ///< FI_MR_PROV_KEY: the provider chooses keys, otherwise the registrar
  bool endpoint = false;           ///< FI_MR_ENDPOINT: a region belongs to one endpoint: `libfabric_registrar_options`
  bool allocated = false;      ///< FI_MR_ALLOCATED: pages must exist at registration, so the provider pins them. Stale
                               ///< registrations do harm
  bool collective = false;     ///< FI_MR_COLLECTIVE: local access covers collectives too
  bool device_memory = false;  ///< FI_HMEM: the domain accepts GPU memory
  std::size_t key_bytes = 8;   ///< width of a peer's key
  std::size_t regions = 0;     ///< `mr_cnt`: the optimal number of regions; 0 if the domain does not say
  access_flags supported = local_access;  ///< from the capabilities: FI_REMOTE_READ, FI_REMOTE_WRITE, FI_ATOMIC
};

/// Returns the rules in `info`, which the domain was, or will be, opened with. Thread-safe. Errors: `invalid_argument`
/// (a null pointer), `unsupported` (FI_MR_RAW: keys longer than 8 bytes; FI_MR_MMU_NOTIFY: the provider must be
/// notified of page table changes).
[[nodiscard]] PINFOLD_EXPORT result<libfabric_rules> libfabric_rules_of(const ::fi_info* info) noexcept;

/// The interface that allocated memory; the numbers are those of `fi_hmem_iface`.
enum class libfabric_interface : std::uint8_t { system, cuda, rocr, level_zero, neuron, synapse_ai };

/// The device of some memory.
struct libfabric_device_memory {
  libfabric_interface interface = libfabric_interface::cuda;  ///< the interface that allocated it
  int device = 0;  ///< a `CUdevice`, or the interface's equivalent; ROCr has none
};

/// Options of the registrar.
struct libfabric_registrar_options {
  /// With FI_MR_ENDPOINT: the endpoint that the registrar binds every region to, before it enables the region. Make one
  /// registrar, and one cache, for each endpoint. The endpoint must be enabled and must outlive the registrar. Unused
  /// without FI_MR_ENDPOINT.
  ::fid_ep* endpoint = nullptr;

  /// Called for every registration: returns the device that the memory belongs to, or nothing for memory of the system.
  /// The registrar may call it on any thread; it must not throw. No monitor sees device memory go: tell the cache
  /// (`invalidate`), or do not keep the registration (`bypass`).
  std::function<std::optional<libfabric_device_memory>(const range&)> device_of{};

  /// Without FI_MR_PROV_KEY: the first key; later keys count up from it. Unset: a random key. A program that also
  /// registers by itself at the same domain should use keys far from these.
  std::optional<std::uint64_t> first_key{};

  std::size_t max_bytes = unlimited;  ///< largest region, if the provider has a limit: libfabric has no way to query it

  /// Accept a provider for which `libfabric_caches_too` returns true. Such a provider registers with all access,
  /// whatever the request, and gives one key to all requests that share its registration. So peers may write memory
  /// that was opened for reads, reach bytes beside it, and use a key after `close`.
  bool accept_second_cache = false;
};

/// A registrar of memory with one domain. Thread-safe if the domain is (FI_THREAD_SAFE). Otherwise the lock that
/// serializes the use of the domain must serialize the cache too, and the cache must have neither a reaper nor workers.
///
/// The domain must outlive the registrar, and must not be bound to an event queue with FI_REG_MR. A lease must outlive
/// the operations that use its `desc` or key, posted here or by a peer. All registrations must be closed before the
/// registrar is destroyed; a cache does that.
///
/// **Access.** `local_read`: FI_SEND and FI_WRITE; `local_write`: FI_RECV and FI_READ (the fabric writes what an RMA
/// read brings). `remote_atomic` opens the region to peers' reads and writes too, because fi_mr(3) has no finer flag.
/// Access of peers covers exactly the requested bytes (R24), if the provider counts in bytes.
///
/// **Keys.** The registrar never chooses the key of an open region, and reuses a key only after all others, so that the
/// provider refuses a peer with an old key. Keys are no secret: fi_mr(3) promises "limited protection". Access, and the
/// withdrawal of keys, hold only if libfabric keeps no registrations of its own: `accept_second_cache`.
///
/// `open` errors: those of `check_request`; `out_of_resources` (ENOMEM, ENOSPC, EAGAIN, or all keys in use),
/// `invalid_range` (EFAULT), `not_permitted`, `unsupported` (EOPNOTSUPP, ENOSYS, FI_EBADFLAGS, FI_EKEYREJECTED),
/// `in_use_conflict` (FI_ENOKEY: other users of the domain hold the keys that the registrar tried), `driver_error`,
/// `closed` (moved from). The native code is the provider's, positive (`native_kind::libfabric`).
///
/// `close` errors: `in_use_conflict` (EBUSY: an endpoint or counter still uses the region; EAGAIN); the region is then
/// still open. After any other failure of fi_close the provider may have freed the region, so it must not be touched
/// again. In that case `close` succeeds, and the registrar never reuses the key. Memory that the provider left pinned
/// stays pinned until the domain is closed.
class PINFOLD_EXPORT libfabric_registrar {
 public:
  static constexpr const char* name = "libfabric";  ///< shown in events and dumps
  /// The region, for operations here and for peers.
  struct registration_type {
    ::fid_mr* mr;          ///< belongs to the registrar
    void* desc;            ///< for local operations
    std::uint64_t key;     ///< for peers; means nothing without remote access
    std::uint64_t origin;  ///< where a peer's addresses begin

    /// Returns what a peer uses with the key to reach `mine`: an address or an offset, as the domain demands. The
    /// registration may begin before the leased memory.
    [[nodiscard]] std::uint64_t peer_address(const void* mine) const noexcept {
      return reinterpret_cast<std::uintptr_t>(mine) - origin;
    }
  };

  /// Makes a registrar. `info` is what the domain was opened with; it is not needed afterwards. Errors: those of
  /// `libfabric_rules_of`, `invalid_argument` (no domain, or no endpoint where FI_MR_ENDPOINT wants one), `unsupported`
  /// (`device_of` without FI_HMEM; `libfabric_caches_too`, unless `accept_second_cache`), `out_of_resources`. Reads the
  /// environment.
  [[nodiscard]] static result<libfabric_registrar> create(::fid_domain* domain, const ::fi_info* info,
                                                          libfabric_registrar_options options = {}) noexcept;
  libfabric_registrar(libfabric_registrar&&) noexcept;
  libfabric_registrar& operator=(libfabric_registrar&&) noexcept;
  ~libfabric_registrar();

  /// Returns the limits: whole pages, and what the domain and the options say.
  [[nodiscard]] registrar_limits limits() const noexcept;
  /// Registers a memory region.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept;
  /// Closes the memory region.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

  /// Returns the rules of the domain.
  [[nodiscard]] libfabric_rules rules() const noexcept;

 private:
  struct state;
  explicit libfabric_registrar(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// Tells libfabric to keep no registrations of its own (FI_MR_CACHE_MAX_COUNT=0, FI_EFA_MR_CACHE_ENABLE=0), unless the
/// environment already sets these variables. Returns whether no provider keeps any now. Call it before the first
/// fi_getinfo, which reads the variables once. Not thread-safe: it changes the environment.
[[nodiscard]] PINFOLD_EXPORT bool turn_off_libfabric_cache() noexcept;

/// Returns whether libfabric may keep registrations beside pinfold: two caches, two sets of monitors, and memory that
/// stays pinned after pinfold has released it. True if libfabric's cache is on and the provider registers with
/// hardware: all but tcp, net, udp, sockets and shm. EFA has a setting of its own, and keeps nothing with FI_MR_LOCAL.
/// Reads the environment at each call, so no other thread may change it meanwhile.
[[nodiscard]] PINFOLD_EXPORT bool libfabric_caches_too(const ::fi_info* info) noexcept;

}  // namespace pinfold
