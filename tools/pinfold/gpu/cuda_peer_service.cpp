// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_peer.hpp"

#include "cli/many_files.hpp"
#include "gpu/gpu.hpp"
#include "peer/peer_protocol.hpp"

#include <map>
#include <utility>

namespace tool {
namespace {

using pinfold::cuda_memory_kind;
using pinfold::result;
using handle = pinfold::cuda_ipc_handle;

class gpu_owner {
 public:
  gpu_owner(gpu device, pinfold::cuda_ipc_exporter exporter) noexcept
      : device_(std::move(device)), exporter_(std::move(exporter)) {}

  result<handle> allocate(const peer_request<cuda_memory_kind>& request) {
    const auto made = device_.allocate(request.where, request.bytes);
    if (!made) return tl::unexpected(made.error());
    owned_.emplace(request.buffer, *made);
    if (const auto filled = device_.fill(made->at, request.bytes, request.seed); !filled)
      return tl::unexpected(filled.error());
    return exporter_.share(made->at, made->bytes).map([](const auto& shared) { return shared.handle; });
  }

  result<handle> release(std::uint32_t buffer) {
    const auto found = owned_.find(buffer);
    if (found == owned_.end()) return pinfold::fail(pinfold::errc::invalid_argument, "the peer has no such buffer");
    if (const auto freed = device_.free(found->second); !freed) return tl::unexpected(freed.error());
    owned_.erase(found);
    return handle{};
  }

 private:
  gpu device_;
  pinfold::cuda_ipc_exporter exporter_;
  std::map<std::uint32_t, gpu_memory> owned_;
};

result<gpu_owner> set_up(int device) {
  allow_many_files();  // each piece of shared memory can be one
  auto exporter = pinfold::cuda_ipc_exporter::create();
  if (!exporter) return tl::unexpected(exporter.error());
  return gpu::start(device).map([&](auto used) { return gpu_owner(std::move(used), *std::move(exporter)); });
}

}  // namespace

void serve_gpu_memory(int socket, int device) noexcept {
  serve_requests<handle, cuda_memory_kind>(socket, [&] { return set_up(device); });
}

}  // namespace tool
