// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/gpu_target.hpp"

#include "cli/failure.hpp"
#include "peer/message.hpp"

#include <cstring>
#include <span>

namespace tool {

gpu_target::gpu_target(gpu& device, std::string_view where, std::size_t bytes) : device_(device) {
  if (where == "host") {
    here_.resize(bytes);
  } else {
    there_ = need(device_.allocate(pinfold::cuda_memory_kind::allocation, bytes), "no GPU memory for messages");
  }
}

gpu_target::~gpu_target() {
  if (there_.at != 0) static_cast<void>(device_.free(there_));
}

pinfold::result<void> gpu_target::wipe(std::size_t bytes) {
  if (there_.at != 0) return device_.wipe(there_.at, bytes);
  std::memset(here_.data(), 0xa5, bytes);
  return {};
}

pinfold::result<void> gpu_target::take(const void* data, std::size_t bytes) {
  const auto from = reinterpret_cast<cuda_pointer>(data);
  if (there_.at != 0) return device_.copy(there_.at, from, bytes);
  return device_.copy_to_host(std::span(here_).first(bytes), from);
}

pinfold::result<bool> gpu_target::holds(std::size_t bytes, std::uint64_t seed, std::size_t position) {
  if (there_.at != 0) return device_.holds(there_.at, bytes, seed, position);
  return tool::holds(std::span(here_).first(bytes), seed, position);
}

}  // namespace tool
