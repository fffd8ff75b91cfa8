// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GPU memory for tests: of the real driver where there is a GPU, else of the emulated one.
#pragma once

#include "cuda/context.hpp"
#include "emulated_cuda/control.hpp"
#include "support/pattern.hpp"

#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {

/// Returns whether this process may use an NVIDIA GPU. If so, tests that need the emulation are skipped.
[[nodiscard]] inline bool real_gpu() noexcept { return ::access("/dev/nvidiactl", R_OK | W_OK) == 0; }

/// Selects the emulation where there is no GPU. Initialised before anything of CUDA is used.
inline const bool driver_is_chosen = real_gpu() || ::setenv("PINFOLD_CUDA_LIBRARY", PINFOLD_EMULATED_CUDA, 1) == 0;

/// The driver, and device 0.
class cuda_here {
 public:
  cuda_here() {
    auto made = cuda::primary_context::of(0);
    if (!made) throw std::runtime_error(describe(made.error()) + "; " + cuda::driver_text());
    context_ = std::move(*made);
    if (!real_gpu()) control = emulated_cuda::controls_of(::dlopen(PINFOLD_EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL));
  }

  [[nodiscard]] const cuda::driver_table& calls() const noexcept { return context_->calls(); }

  /// Runs `work` with the device's context; throws where the driver refuses.
  template <class Work>
  void demand(Work&& work) const {
    const auto answer = context_->with(std::forward<Work>(work));
    if (answer != cuda::status::success)
      throw std::runtime_error("the CUDA driver says " + std::to_string(static_cast<int>(answer)));
  }

  void write(std::uint64_t at, std::size_t bytes, std::uint32_t seed) const {
    std::vector<std::byte> host(bytes);
    write_pattern(host.data(), bytes, seed);
    demand([&] { return calls().memcpy_h_to_d(at, host.data(), bytes); });
  }
  [[nodiscard]] bool holds(const void* at, std::size_t bytes, std::uint32_t seed) const {
    return holds(reinterpret_cast<std::uintptr_t>(at), bytes, seed);
  }
  [[nodiscard]] bool holds(std::uint64_t at, std::size_t bytes, std::uint32_t seed) const {
    std::vector<std::byte> host(bytes);
    demand([&] { return calls().memcpy_d_to_h(host.data(), at, bytes); });
    return holds_pattern(host.data(), bytes, seed);
  }

  [[nodiscard]] emulated_cuda::counters counters() const {
    emulated_cuda::counters now{};
    if (control) control->read_counters(&now);
    return now;
  }

  std::optional<emulated_cuda::controls> control;  ///< the emulation's controls; none with a real GPU

 private:
  std::shared_ptr<cuda::primary_context> context_;
};

/// Returns the process's instance, which the first call makes.
inline cuda_here& gpu() {
  static cuda_here only;
  return only;
}

/// Returns the emulation's controls. Throws with a real GPU.
inline const emulated_cuda::controls& emulation() {
  const auto& controls = gpu().control;
  if (!controls) throw std::logic_error("only the emulated driver can be told to do this");
  return *controls;
}

}  // namespace pinfold::testing
