// SPDX-License-Identifier: BSD-3-Clause
#include "cli/affinity.hpp"
#include "peer/message.hpp"
#include "peer/peer_protocol.hpp"

#include <map>
#include <new>
#include <utility>

namespace tool {
namespace {

using buffers = std::map<std::uint32_t, pinfold::memfd_buffer>;

peer_reply refused(const pinfold::error& why) { return {false, why, {}}; }

peer_reply allocate(pinfold::memfd_exporter& exporter, buffers& owned, const peer_request& request) {
  if (owned.contains(request.buffer)) {
    return refused(
        {pinfold::errc::invalid_argument, pinfold::native_kind::none, 0, "the peer already has this buffer"});
  }
  auto buffer = exporter.allocate(request.bytes, reinterpret_cast<void*>(request.where));
  if (!buffer) return refused(buffer.error());
  fill({buffer->data(), request.bytes}, request.seed);
  const auto handle = buffer->handle();
  owned.emplace(request.buffer, *std::move(buffer));
  return {true, {}, handle};
}

peer_reply release(buffers& owned, const peer_request& request) {
  if (owned.erase(request.buffer) == 1) return {true, {}, {}};
  return refused({pinfold::errc::invalid_argument, pinfold::native_kind::none, 0, "the peer has no such buffer"});
}

peer_reply answer(pinfold::memfd_exporter& exporter, buffers& owned, const peer_request& request) {
  return request.verb == peer_verb::allocate ? allocate(exporter, owned, request) : release(owned, request);
}

pinfold::result<pinfold::memfd_exporter> set_up(const peer_options& options) {
  if (options.cpu) {
    const auto pinned = run_only_on(*options.cpu);
    if (!pinned) return tl::unexpected(pinned.error());
  }
  return pinfold::memfd_exporter::create({.serve = options.serve});
}

}  // namespace

void serve_as_peer(int socket, const peer_options& options) noexcept {
  auto exporter = set_up(options);
  if (!exporter) {
    send_packet(socket, refused(exporter.error()));
    return;
  }
  buffers owned;
  peer_request request{};
  for (bool open = send_packet(socket, peer_reply{true, {}, {}}); open && receive_packet(socket, request);) {
    open = send_packet(socket, answer(*exporter, owned, request));
  }
}

}  // namespace tool
