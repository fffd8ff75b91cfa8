// SPDX-License-Identifier: BSD-3-Clause
#include "peer/message.hpp"
#include "peer/peer_process.hpp"
#include "peer/peer_protocol.hpp"

#include "bench/worker_group.hpp"

#include <cerrno>
#include <map>
#include <utility>

namespace tool {
namespace {

using handle = pinfold::memfd_handle;

class memory_owner {
 public:
  explicit memory_owner(pinfold::memfd_exporter exporter) noexcept : exporter_(std::move(exporter)) {}

  pinfold::result<handle> allocate(const peer_request<std::uint64_t>& request) {
    if (owned_.contains(request.buffer))
      return pinfold::fail(pinfold::errc::invalid_argument, "the peer already has this buffer");
    auto buffer = exporter_.allocate(request.bytes, reinterpret_cast<void*>(request.where));
    if (!buffer) return tl::unexpected(buffer.error());
    fill({buffer->data(), request.bytes}, request.seed);
    return owned_.emplace(request.buffer, *std::move(buffer)).first->second.handle();
  }

  pinfold::result<handle> release(std::uint32_t buffer) {
    if (owned_.erase(buffer) == 1) return handle{};
    return pinfold::fail(pinfold::errc::invalid_argument, "the peer has no such buffer");
  }

 private:
  pinfold::memfd_exporter exporter_;
  std::map<std::uint32_t, pinfold::memfd_buffer> owned_;
};

}  // namespace

void serve_as_peer(int socket, const peer_options& options) noexcept {
  serve_requests<handle, std::uint64_t>(socket, [&] {
    const bool pinned = !options.cpu || bench::stay_on(*options.cpu);
    auto exporter = pinned ? pinfold::memfd_exporter::create({.serve = options.serve})
                           : pinfold::fail_errno(pinfold::errc::unsupported, errno, "cannot pin a peer to its CPU");
    return std::move(exporter).map([](auto made) { return memory_owner(std::move(made)); });
  });
}

}  // namespace tool
