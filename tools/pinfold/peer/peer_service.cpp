// SPDX-License-Identifier: BSD-3-Clause
#include "cli/affinity.hpp"
#include "peer/message.hpp"
#include "peer/peer_process.hpp"
#include "peer/peer_protocol.hpp"

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
    const auto pinned = options.cpu ? run_only_on(*options.cpu) : pinfold::result<void>();
    return pinned.and_then([&] { return pinfold::memfd_exporter::create({.serve = options.serve}); })
        .map([](auto exporter) { return memory_owner(std::move(exporter)); });
  });
}

}  // namespace tool
