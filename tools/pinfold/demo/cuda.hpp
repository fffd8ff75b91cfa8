// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The demo's scene with GPU memory, over pinfold's emulation of the CUDA driver.
#pragma once

#include <string>

namespace tool {

/// Shows the scene. `library` is the emulation's path; if it is empty, PINFOLD_CUDA_LIBRARY must be set. Call it before
/// this process has a second thread or a CUDA driver. Throws `failure` when a byte is wrong or a promised event did not
/// happen.
void show_cuda(const std::string& library);

}  // namespace tool
