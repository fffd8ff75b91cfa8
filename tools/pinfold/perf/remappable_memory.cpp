// SPDX-License-Identifier: BSD-3-Clause
#include "perf/remappable_memory.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"

#include <cerrno>
#include <sys/mman.h>
#include <system_error>

namespace tool {
namespace {

void* mapped(void* at, std::size_t bytes, int how) {
  void* const got = ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | how, -1, 0);
  if (got != MAP_FAILED) return got;
  throw failure(fmt::format("out_of_resources: {} for buffers: mmap: {} (errno {})", size_text(bytes),
                            std::generic_category().message(errno), errno));
}

}  // namespace

remappable_memory::remappable_memory(std::size_t bytes) : first_(mapped(nullptr, bytes, 0)), bytes_(bytes) {}

remappable_memory::~remappable_memory() {
  if (first_ != nullptr) ::munmap(first_, bytes_);
}

void remappable_memory::remap() { mapped(first_, bytes_, MAP_FIXED); }

}  // namespace tool
