// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_peer.hpp"
#include "gpu/cuda_peer_protocol.hpp"
#include "gpu/gpu.hpp"

#include <exception>
#include <map>

namespace tool {
namespace {

using pinfold::result;

gpu_reply refused(const pinfold::error& why) { return {false, why, {}}; }

class gpu_shop {
 public:
  gpu_shop(gpu device, pinfold::cuda_ipc_exporter exporter) noexcept
      : device_(std::move(device)), exporter_(std::move(exporter)) {}

  gpu_reply obey(const gpu_request& request) {
    if (request.what == gpu_request::verb::free) return release(request);
    const auto made = device_.allocate(request.kind, request.bytes);
    if (!made) return refused(made.error());
    owned_.emplace(request.buffer, *made);
    if (const auto filled = device_.fill(made->at, request.bytes, request.seed); !filled)
      return refused(filled.error());
    const auto shared = exporter_.share(made->at, made->bytes);
    return shared ? gpu_reply{true, {}, shared->handle} : refused(shared.error());
  }

 private:
  gpu_reply release(const gpu_request& request) {
    const auto found = owned_.find(request.buffer);
    if (found == owned_.end())
      return refused({pinfold::errc::invalid_argument, pinfold::native_kind::none, 0, "the peer has no such buffer"});
    const auto freed = device_.free(found->second);
    if (!freed) return refused(freed.error());
    owned_.erase(found);
    return {true, {}, {}};
  }

  gpu device_;
  pinfold::cuda_ipc_exporter exporter_;
  std::map<std::uint32_t, gpu_memory> owned_;
};

result<gpu_shop> set_up(int device) {
  allow_many_files();
  auto exporter = pinfold::cuda_ipc_exporter::create();
  if (!exporter) return tl::unexpected(exporter.error());
  auto used = gpu::start(device);
  if (!used) return tl::unexpected(used.error());
  return gpu_shop(*std::move(used), *std::move(exporter));
}

}  // namespace

void serve_gpu_memory(int socket, int device) noexcept try {
  auto shop = set_up(device);
  if (!shop) {
    send_packet(socket, refused(shop.error()));
    return;
  }
  gpu_request request{};
  for (bool open = send_packet(socket, gpu_reply{true, {}, {}}); open && receive_packet(socket, request);) {
    open = send_packet(socket, shop->obey(request));
  }
} catch (const std::exception&) {
  send_packet(socket, refused({pinfold::errc::out_of_resources, pinfold::native_kind::none, 0, "no memory"}));
}

}  // namespace tool
