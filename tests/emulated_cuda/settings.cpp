// SPDX-License-Identifier: BSD-3-Clause
#include "settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace emulated_cuda {

std::uint64_t number_in(std::string_view text) noexcept {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string_view variable(const char* name) noexcept {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, when the library is loaded
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

namespace {

std::uint64_t number_or(const char* name, std::uint64_t otherwise) noexcept {
  const auto text = variable(name);
  return text.empty() ? otherwise : number_in(text);
}

status code_or(const char* name, status otherwise) noexcept {
  return static_cast<status>(number_or(name, static_cast<std::uint64_t>(otherwise)));
}

}  // namespace

settings settings_of_environment() {
  settings made;
  made.devices = static_cast<unsigned>(std::min<std::uint64_t>(number_or("EMULATED_CUDA_DEVICES", 1), most_devices));
  made.memory_bytes = number_or("EMULATED_CUDA_MEMORY_MIB", 1024) << 20;
  made.peers = number_or("EMULATED_CUDA_PEERS", 1) != 0;
  made.freed = code_or("EMULATED_CUDA_FREED", made.freed);
  made.dead = code_or("EMULATED_CUDA_DEAD", made.dead);
  const auto rule = variable("EMULATED_CUDA_SECOND_OPEN");
  if (rule == "refused") made.rule = second_open::refused;
  if (rule == "exclusive") made.rule = second_open::exclusive;
  made.max_mappings = number_or("EMULATED_CUDA_MAX_MAPPINGS", no_limit);
  made.stream_delay = static_cast<unsigned>(number_or("EMULATED_CUDA_STREAM_DELAY", 0));
  return made;
}

}  // namespace emulated_cuda
