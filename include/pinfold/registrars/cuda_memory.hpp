// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GPU memory of this process, registered with a device that reads it by itself: a NIC, another GPU, a disk.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/rights.hpp>

#include <cstdint>
#include <utility>

namespace pinfold {

/// Which allocation lies at an address of GPU memory: no two are equal, in one process, for ever.
struct cuda_identity {
  std::uint64_t id =
      0;  ///< CU_POINTER_ATTRIBUTE_BUFFER_ID, or of a mapped segment CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
  std::uint64_t base = 0;  ///< of a mapped segment, where it is mapped; else 0
  friend bool operator==(const cuda_identity&, const cuda_identity&) noexcept = default;
};

/// What all of `memory` belongs to. Asks the driver three times; thread-safe.
///
/// Errors: `invalid_argument` (not memory that CUDA knows), `invalid_range` (more than one allocation or segment:
/// register each by itself), `unsupported` (no driver; memory of the host; managed memory, which moves).
[[nodiscard]] PINFOLD_EXPORT result<cuda_identity> identify_cuda_memory(range memory) noexcept;

/// Whether the first byte of `memory` still belongs to that. Asks the driver once; thread-safe.
[[nodiscard]] PINFOLD_EXPORT bool is_cuda_memory(const cuda_identity& expected, range memory) noexcept;

/// How a cache of GPU memory learns that memory was freed.
enum class cuda_freed : std::uint8_t {
  compared,   ///< by the buffer id, which it asks the driver for on every hit
  announced,  ///< the application calls the cache's `invalidate`, or `announce_gone`, before it frees: hits cost
              ///< nothing
};

/// Makes a registrar, one whose device can reach GPU memory, register nothing else, and know it again: memory that was
/// freed and allocated again at its address is not what was registered. For `cache`; monitors see host memory only.
template <registrar R>
class cuda_memory {
 public:
  static constexpr const char* name = R::name;
  struct registration_type : R::registration_type {
    cuda_identity identity;
  };

  explicit cuda_memory(R inner, cuda_freed freed = cuda_freed::compared) : inner_(std::move(inner)), freed_(freed) {}

  /// As the registrar's own, but no rounding: what lies beside an allocation is another.
  [[nodiscard]] registrar_limits limits() const noexcept {
    auto limits = std::as_const(inner_).limits();
    limits.granularity = 1;
    return limits;
  }

  /// Errors: those of `identify_cuda_memory` and of the registrar.
  [[nodiscard]] result<registration_type> open(range memory, rights access) noexcept {
    if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
    const auto before = identify_cuda_memory(memory);
    if (!before) return tl::unexpected(before.error());
    auto made = inner_.open(memory, access);
    if (!made) return tl::unexpected(made.error());
    return registration_type{*made, *before};
  }

  [[nodiscard]] result<void> close(const registration_type& registration) noexcept {
    return inner_.close(registration);
  }

  /// Whether the memory is what was registered. Always so where frees are announced.
  [[nodiscard]] bool still_is(const registration_type& registration, range memory) const noexcept {
    return freed_ == cuda_freed::announced || is_cuda_memory(registration.identity, memory);
  }

 private:
  R inner_;
  cuda_freed freed_;
};

}  // namespace pinfold
