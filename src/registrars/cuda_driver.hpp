// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The driver's library, loaded once, and what its answers mean.
#pragma once

#include <pinfold/error.hpp>

#include "registrars/cuda_api.hpp"

#include <string>

namespace pinfold::cuda {

/// The driver, initialised: loaded by the first call, for the life of the process. PINFOLD_CUDA_LIBRARY names another
/// library than libcuda.so.1. Thread-safe. `unsupported` when there is none of use, and then for ever; the words of the
/// dynamic linker are in `driver_text`.
[[nodiscard]] result<const driver_table*> driver() noexcept;

/// The driver's version, or why there is none. Allocates.
[[nodiscard]] std::string driver_text();

/// What a refusal means to a cache. `otherwise` stands for all that is nothing special.
[[nodiscard]] constexpr errc code_for(status refused, errc otherwise = errc::driver_error) noexcept {
  switch (refused) {
    case status::out_of_memory:
    case status::too_many_peers: return errc::out_of_resources;
    case status::already_mapped: return errc::already_mapped;
    case status::not_permitted: return errc::not_permitted;
    case status::stub_library:
    case status::call_requires_newer_driver:
    case status::device_unavailable:
    case status::not_initialized:
    case status::no_device:
    case status::peer_access_unsupported:
    case status::not_supported:
    case status::system_not_ready:
    case status::system_driver_mismatch:
    case status::compat_not_supported_on_device: return errc::unsupported;
    default: return otherwise;
  }
}

/// The driver's refusal as an error, with its code.
[[nodiscard]] constexpr error as_error(status refused, const char* message,
                                       errc otherwise = errc::driver_error) noexcept {
  return {code_for(refused, otherwise), native_kind::cuda, static_cast<std::int32_t>(refused), message};
}
[[nodiscard]] constexpr tl::unexpected<error> fail_cuda(status refused, const char* message,
                                                        errc otherwise = errc::driver_error) noexcept {
  return tl::unexpected<error>(as_error(refused, message, otherwise));
}

/// Nothing, or the refusal.
[[nodiscard]] constexpr result<void> checked(status answer, const char* message,
                                             errc otherwise = errc::driver_error) noexcept {
  if (answer == status::success) return {};
  return fail_cuda(answer, message, otherwise);
}

/// Whether the context, and everything in it, is gone: nothing of it is left to close.
[[nodiscard]] constexpr bool context_gone(status answer) noexcept {
  return answer == status::context_is_destroyed || answer == status::deinitialized;
}

}  // namespace pinfold::cuda
