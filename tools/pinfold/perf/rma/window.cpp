// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/window.hpp"

#include "cli/failure.hpp"

#include <cstring>

namespace tool {

rma_window::rma_window(const fabric_end& end, const rma_buffers& slots, const pinfold::cache_options& cache)
    : memory_(slots.count * slots.size), size_(slots.size), cache_(end.registrar(), cache) {
  constexpr auto for_peers =
      pinfold::local_access | pinfold::access_flags::remote_read | pinfold::access_flags::remote_write;
  for (std::size_t i = 0; i < slots.count; ++i)
    held_.push_back(need(cache_.acquire(slot(i), for_peers), "cannot register the buffers that other ranks put to"));
}

std::string rma_window::invitation() {
  std::string bytes;
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const auto handle = held_[i].registration();
    const fabric_target where{handle.peer_address(slot(i).data()), handle.key};
    bytes.append(reinterpret_cast<const char*>(&where), sizeof where);
  }
  return bytes;
}

std::vector<fabric_target> targets_of(const std::string& invitation, std::size_t count) {
  std::vector<fabric_target> targets(count);
  if (invitation.size() != count * sizeof(fabric_target))
    throw failure("the next rank has a different number of buffers");
  std::memcpy(targets.data(), invitation.data(), invitation.size());
  return targets;
}

}  // namespace tool
