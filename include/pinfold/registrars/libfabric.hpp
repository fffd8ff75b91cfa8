// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory regions of a fabric domain, through libfabric. In a library of its own: `pinfold::libfabric`,
/// `-lpinfold-libfabric`. Needs no header of libfabric. Rules are those of fi_mr(3) and fi_domain(3).
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

struct fi_info;
struct fid_domain;
struct fid_ep;
struct fid_mr;

namespace pinfold {

/// What a domain demands of memory: its `mr_mode`, for people and for choices. Constant while the domain lives.
struct libfabric_rules {
  bool local = false;              ///< FI_MR_LOCAL: local transfers need a `desc` too; else it may be null
  bool virtual_addresses = false;  ///< FI_MR_VIRT_ADDR: peers say addresses; else offsets: `peer_address` does either
  bool provider_keys = false;      ///< FI_MR_PROV_KEY: the provider chooses keys; else the registrar does
  bool endpoint = false;           ///< FI_MR_ENDPOINT: a region is of one endpoint: `libfabric_registrar_options`
  bool allocated =
      false;  ///< FI_MR_ALLOCATED: pages are there when registered, so the provider pins. What is stale hurts
  bool collective = false;          ///< FI_MR_COLLECTIVE: local rights are for collectives too
  bool device_memory = false;       ///< FI_HMEM: the domain takes memory of GPUs
  std::size_t key_bytes = 8;        ///< width of a peer's key
  std::size_t regions = 0;          ///< `mr_cnt`: how many regions suit the domain; 0 when it does not say
  rights supported = local_access;  ///< from the capabilities: FI_REMOTE_READ, FI_REMOTE_WRITE, FI_ATOMIC
};

/// Reads what the domain was, or will be, opened with. Thread-safe. Errors: `invalid_argument` (nothing there),
/// `unsupported` (FI_MR_RAW: keys that no 8 bytes hold; FI_MR_MMU_NOTIFY: the provider wants to be told of page
/// faults).
[[nodiscard]] PINFOLD_EXPORT result<libfabric_rules> libfabric_rules_of(const ::fi_info* info) noexcept;

/// Who made some memory; numbered as `fi_hmem_iface` is.
enum class libfabric_interface : std::uint8_t { system, cuda, rocr, level_zero, neuron, synapse_ai };

/// Memory of a device.
struct libfabric_device_memory {
  libfabric_interface interface = libfabric_interface::cuda;
  int device = 0;  ///< a `CUdevice`, or what that interface has for it; ROCr has none
};

struct libfabric_registrar_options {
  /// With FI_MR_ENDPOINT: every region is bound to it and enabled. One registrar, and one cache, for each endpoint.
  /// Enabled, and outlives the registrar. Unused without FI_MR_ENDPOINT.
  ::fid_ep* endpoint = nullptr;

  /// Asked for every registration: whether the memory is a device's. Nothing: memory of the system. May be called on
  /// any thread; must not throw. No monitor sees such memory go: tell the cache (`invalidate`), or do not keep it
  /// (`bypass`).
  std::function<std::optional<libfabric_device_memory>(const range&)> device_of{};

  /// Without FI_MR_PROV_KEY: the first key, and then upwards; nothing: a random one. A program that registers by itself
  /// at the same domain is best served with keys of its own far from these.
  std::optional<std::uint64_t> first_key{};

  std::size_t max_bytes = SIZE_MAX;  ///< largest region, where the provider has a limit: libfabric has no way to ask

  /// Goes on where `libfabric_caches_too`. The provider then registers with all rights, whatever was asked for, and
  /// gives one key to all that shares its registration: peers may write what was opened for reads, reach bytes beside
  /// it, and use a key after `close`.
  bool accept_second_cache = false;
};

/// Registers memory with one domain. Thread-safe where the domain is (FI_THREAD_SAFE); otherwise what serializes the
/// use of the domain has to serialize the cache, which then wants no reaper and no workers.
///
/// The domain must outlive the registrar, and must not be bound to an event queue with FI_REG_MR. A lease must outlive
/// the operations that use its `desc` or key, posted here or by a peer. Close all registrations before the registrar
/// goes; a cache does.
///
/// **Rights.** `local_read`: FI_SEND and FI_WRITE; `local_write`: FI_RECV and FI_READ (the fabric writes what an RMA
/// read brings). `remote_atomic` opens the region to peers' reads and writes too, as fi_mr(3) has no finer right.
/// Rights of peers are to exactly the bytes that were asked for (R24), where the provider counts in bytes.
///
/// **Keys** that the registrar chooses are never those of a region that is open, and come back only after all others,
/// so that a peer with an old key meets a refusal. They are no secret: fi_mr(3) promises "limited protection". Rights
/// and the withdrawal of keys hold where libfabric keeps no registrations of its own: `accept_second_cache`.
///
/// `open` errors: those of `check_request`; `out_of_resources` (ENOMEM, ENOSPC, EAGAIN, or all keys in use),
/// `invalid_range` (EFAULT), `not_permitted`, `unsupported` (EOPNOTSUPP, ENOSYS, FI_EBADFLAGS, FI_EKEYREJECTED),
/// `in_use_conflict` (FI_ENOKEY: others at the domain hold the keys tried), `driver_error`. The native code is the
/// provider's, positive (`native_kind::libfabric`). One that was moved from says `closed`.
///
/// `close` errors: `in_use_conflict` (EBUSY: an endpoint or counter still uses it; EAGAIN), and the region is still
/// open. After any other failure of fi_close the provider may have freed the region: nobody may touch it again. `close`
/// succeeds then, and the key is not used again; memory that the provider kept pinned stays so until the domain is
/// closed.
class PINFOLD_EXPORT libfabric_registrar {
 public:
  static constexpr const char* name = "libfabric";
  struct registration_type {
    ::fid_mr* mr;          ///< belongs to the registrar
    void* desc;            ///< for local operations
    std::uint64_t key;     ///< for peers; means nothing without a remote right
    std::uint64_t origin;  ///< where a peer's addresses begin

    /// What a peer has to say, beside the key, to reach `mine`: an address or an offset, as the domain demands. The
    /// registration may begin before the memory that it was leased for.
    [[nodiscard]] std::uint64_t peer_address(const void* mine) const noexcept {
      return reinterpret_cast<std::uintptr_t>(mine) - origin;
    }
  };

  /// `info` is what the domain was opened with; it is not needed afterwards. Errors: those of `libfabric_rules_of`,
  /// `invalid_argument` (no domain, or no endpoint where FI_MR_ENDPOINT wants one), `unsupported` (`device_of` without
  /// FI_HMEM; `libfabric_caches_too`, unless `accept_second_cache`), `out_of_resources`. Reads the environment.
  [[nodiscard]] static result<libfabric_registrar> create(::fid_domain* domain, const ::fi_info* info,
                                                          libfabric_registrar_options options = {}) noexcept;
  libfabric_registrar(libfabric_registrar&&) noexcept;
  libfabric_registrar& operator=(libfabric_registrar&&) noexcept;
  ~libfabric_registrar();

  [[nodiscard]] registrar_limits limits() const noexcept;
  [[nodiscard]] result<registration_type> open(range memory, rights access) noexcept;
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

  [[nodiscard]] libfabric_rules rules() const noexcept;

 private:
  struct state;
  explicit libfabric_registrar(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// Tells libfabric to keep no registrations of its own (FI_MR_CACHE_MAX_COUNT=0, FI_EFA_MR_CACHE_ENABLE=0) unless the
/// environment says something already. Whether none of its providers keeps any now. Call it before the first
/// fi_getinfo, which reads the variables once. Not thread-safe: it changes the environment.
[[nodiscard]] PINFOLD_EXPORT bool turn_off_libfabric_cache() noexcept;

/// Whether libfabric may keep registrations beside pinfold: two caches, two sets of monitors, and memory that stays
/// pinned after pinfold let it go. It may where its cache is on and the provider registers with hardware: all but tcp,
/// net, udp, sockets and shm. EFA has a setting of its own, and keeps nothing with FI_MR_LOCAL. The answer is of the
/// environment as it is now. Not thread-safe with changes of it.
[[nodiscard]] PINFOLD_EXPORT bool libfabric_caches_too(const ::fi_info* info) noexcept;

}  // namespace pinfold
