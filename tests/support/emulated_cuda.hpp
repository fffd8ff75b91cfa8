// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The emulated CUDA driver, loaded by the path that CMake hands to tests that want it.
///
/// As with the real driver, a process that was forked off one that called cuInit has none: tests with several processes
/// fork all of them first, and call cuInit in children only.
#pragma once

#include "cuda/api.hpp"
#include "emulated_cuda/control.hpp"

#include <cstring>
#include <stdexcept>

namespace pinfold::testing {

struct emulated_driver {
  cuda::driver_table cu{};
  emulated_cuda::controls control{};

  emulated_driver() {
    void* const library = ::dlopen(PINFOLD_EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error("cannot load " PINFOLD_EMULATED_CUDA);
    for (const cuda::entry_point& each : cuda::entry_points) {
      void* const found = ::dlsym(library, each.symbol);
      if (found == nullptr) throw std::runtime_error(each.symbol);
      std::memcpy(reinterpret_cast<char*>(&cu) + each.offset, &found, sizeof found);
    }
    const auto controls = emulated_cuda::controls_of(library);
    if (!controls) throw std::runtime_error("not the emulation: " PINFOLD_EMULATED_CUDA);
    control = *controls;
  }

  /// Calls cuInit, and makes a context of the device current on this thread.
  void start(cuda::device device = 0) {
    cuda::context context = nullptr;
    if (cu.init(0) != cuda::status::success ||
        cu.device_primary_ctx_retain(&context, device) != cuda::status::success ||
        cu.ctx_set_current(context) != cuda::status::success) {
      throw std::runtime_error("the emulated driver does not start");
    }
  }

  [[nodiscard]] emulated_cuda::counters counters() const {
    emulated_cuda::counters now{};
    control.read_counters(&now);
    return now;
  }
};

}  // namespace pinfold::testing
