// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GPU memory of this process, registered with a device that accesses it directly: a NIC, another GPU, a disk.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace pinfold {

/// Identifies the allocation at an address of GPU memory: in one process, no two allocations ever have equal
/// identities.
struct cuda_identity {
  std::uint64_t id = 0;  ///< CU_POINTER_ATTRIBUTE_BUFFER_ID; for a mapped segment, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
  std::uint64_t base = 0;  ///< for a mapped segment, its address; else 0
  friend bool operator==(const cuda_identity&, const cuda_identity&) noexcept = default;
};

/// Returns the identity of the allocation that contains all of `memory`. Makes three driver calls; thread-safe.
///
/// Errors: `invalid_argument` (not memory that CUDA knows), `invalid_range` (more than one allocation or segment:
/// register each by itself), `unsupported` (no driver; memory of the host; managed memory, which moves).
[[nodiscard]] PINFOLD_EXPORT result<cuda_identity> identify_cuda_memory(range memory) noexcept;

/// Returns whether the first byte of `memory` still belongs to that allocation. Makes one driver call; thread-safe.
[[nodiscard]] PINFOLD_EXPORT bool is_cuda_memory(const cuda_identity& expected, range memory) noexcept;

/// Returns the allocations or mapped segments that `memory` touches, by address; together they cover it. Makes a few
/// driver calls for each; thread-safe. Errors: `invalid_range` (a part has no memory), `out_of_resources`, and
/// otherwise as `identify_cuda_memory`.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<range>> segments_of_cuda_memory(range memory) noexcept;

/// The way a cache of GPU memory learns that memory was freed.
enum class cuda_freed : std::uint8_t {
  compared,   ///< the cache compares buffer ids; it asks the driver on every hit
  announced,  ///< the application calls the cache's `invalidate`, or `announce_gone`, before it frees; hits cost
              ///< nothing extra
};

/// An adapter that makes a registrar, for a device that can reach GPU memory, register only GPU memory and identify it:
/// memory that was freed and allocated again at the same address is no hit. For `cache`; monitors see host memory only.
template <registrar R>
class cuda_memory {
 public:
  static constexpr const char* name = R::name;  ///< the registrar's
  /// The registrar's registration, and the allocation.
  struct registration_type : R::registration_type {
    cuda_identity identity;  ///< of the allocation that was registered
  };

  /// Takes over the registrar.
  explicit cuda_memory(R inner, cuda_freed freed = cuda_freed::compared) : inner_(std::move(inner)), freed_(freed) {}

  /// Returns the registrar's limits, but without rounding: memory beside an allocation belongs to another allocation.
  [[nodiscard]] registrar_limits limits() const noexcept {
    auto limits = std::as_const(inner_).limits();
    limits.granularity = 1;
    return limits;
  }

  /// Returns the allocations and mapped segments under the range: `segments_of_cuda_memory`.
  [[nodiscard]] result<std::vector<range>> segments_of(range memory) const noexcept {
    return segments_of_cuda_memory(memory);
  }

  /// Errors: those of `identify_cuda_memory` and of the registrar.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
    const auto before = identify_cuda_memory(memory);
    if (!before) return tl::unexpected(before.error());
    auto made = inner_.open(memory, access);
    if (!made) return tl::unexpected(made.error());
    return registration_type{*made, *before};
  }

  /// Closes the registrar's registration.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept {
    return inner_.close(registration);
  }

  static constexpr bool exclusive_in_process = is_exclusive_in_process<R>;  ///< as of the registrar

  /// Calls the registrar's `invalidated`.
  void invalidated(const registration_type& registration) noexcept
    requires informed_registrar<R>
  {
    inner_.invalidated(registration);
  }
  /// Returns the registrar's `may_keep`.
  [[nodiscard]] bool may_keep(const registration_type& registration) const noexcept
    requires borrowing_registrar<R>
  {
    return inner_.may_keep(registration);
  }

  /// Returns whether the memory is still the registered allocation. Always true with `cuda_freed::announced`.
  [[nodiscard]] bool still_is(const registration_type& registration, range memory) const noexcept {
    return freed_ == cuda_freed::announced || is_cuda_memory(registration.identity, memory);
  }

 private:
  R inner_;
  cuda_freed freed_;
};

}  // namespace pinfold
