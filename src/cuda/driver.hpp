// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Loads the driver's library once, and translates its status codes.
#pragma once

#include <pinfold/error.hpp>

#include "cuda/api.hpp"

#include <string>

namespace pinfold::cuda {

/// Returns the initialised driver, which the first call loads for the life of the process. PINFOLD_CUDA_LIBRARY names
/// another library than libcuda.so.1. Thread-safe. `unsupported` if there is no usable driver, then for ever;
/// `driver_text` has the dynamic linker's message.
[[nodiscard]] result<const driver_table*> driver() noexcept;

/// Returns the driver's version, or why there is no driver. Allocates.
[[nodiscard]] std::string driver_text();

/// Returns the code for a refusal, or `otherwise` for a refusal without a code of its own.
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

/// Returns the driver's refusal as an error with its code.
[[nodiscard]] constexpr error as_error(status refused, const char* message,
                                       errc otherwise = errc::driver_error) noexcept {
  return {code_for(refused, otherwise), native_kind::cuda, static_cast<std::int32_t>(refused), message};
}
[[nodiscard]] constexpr tl::unexpected<error> fail_cuda(status refused, const char* message,
                                                        errc otherwise = errc::driver_error) noexcept {
  return tl::unexpected<error>(as_error(refused, message, otherwise));
}

/// Returns success, or the refusal as an error.
[[nodiscard]] constexpr result<void> checked(status answer, const char* message,
                                             errc otherwise = errc::driver_error) noexcept {
  if (answer == status::success) return {};
  return fail_cuda(answer, message, otherwise);
}

/// Whether the context and all its contents are gone, so that nothing is left to close.
[[nodiscard]] constexpr bool context_gone(status answer) noexcept {
  return answer == status::context_is_destroyed || answer == status::deinitialized;
}

}  // namespace pinfold::cuda
