// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/client.hpp"

#include "monitors/bpf/failure.hpp"
#include "monitors/bpf/slots.hpp"
#include "monitors/bpf/wire.hpp"
#include "os/background_closer.hpp"

#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <sys/time.h>

namespace pinfold::monitors {

namespace {

result<void> check_server(const os::file& socket) noexcept {
  const auto peer = os::other_end(socket);
  if (!peer) return tl::unexpected(peer.error());
  const auto trusted = os::is_trusted(socket, *peer);
  if (!trusted) return tl::unexpected(trusted.error());
  if (!*trusted) return fail(errc::not_permitted, "the monitor's server runs as neither root nor this user");
  return {};
}

result<os::file> connect_to(std::string_view path) noexcept {
  const auto address = bpf_address::of(path);
  if (!address) return tl::unexpected(address.error());
  os::file socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return bpf_fail("cannot create a socket");
  const bool refused = os::refuse_descriptors(socket);  // until the owner of the socket is known
  const timeval connect_limit{.tv_sec = bpf_answer_timeout.count(), .tv_usec = 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_SNDTIMEO, &connect_limit, sizeof connect_limit);
  const auto* const name = reinterpret_cast<const sockaddr*>(&address->name);
  if (::connect(socket.number(), name, address->bytes) != 0)
    return bpf_fail("cannot connect to the socket of pinfold monitord");
  if (auto whose = check_server(socket); !whose) {
    if (const os::background_closer closer(refused); closer.has_room()) closer.close(std::move(socket));
    return tl::unexpected(whose.error());
  }
  os::accept_descriptors(socket);
  return socket;
}

result<bpf_received> hear(const os::file& socket) noexcept {
  if (!os::readable_within(socket, bpf_answer_timeout))
    return fail_errno(errc::timed_out, ETIMEDOUT, "the monitor's server did not answer in time");
  auto heard = bpf_receive(socket.number());
  if (!heard || heard->message.refused == 0) return heard;
  const int native = heard->message.refused;
  if (native == EEXIST)
    return fail_errno(errc::unsupported, native, "the server already serves another monitor of this address space");
  return fail_errno(bpf_code_for(native), native, "the monitor's server refused the request");
}

}  // namespace

result<bpf_subscription> bpf_subscribe_here() noexcept {
  auto slots = bpf_slots::load();
  if (!slots) return tl::unexpected(slots.error());
  auto slot = slots->reserve();
  if (!slot) return tl::unexpected(slot.error());
  bpf_accept(slot->secret);
  const auto invitation = slots->answer(*slot);
  if (!invitation) return tl::unexpected(invitation.error());
  if (invitation->answer != pinfold_accepted)
    return fail(errc::unsupported, "the kernel programs do not see system calls");
  return bpf_subscription{std::move(slot->ring), slot->first_generation, slots->take_links(), os::file()};
}

result<bpf_subscription> bpf_subscribe_at(std::string_view path) noexcept {
  auto socket = connect_to(path);
  if (!socket) return tl::unexpected(socket.error());
  const auto invited = hear(*socket);
  if (!invited) return tl::unexpected(invited.error());
  bpf_accept(invited->message.secret);
  if (!bpf_send(socket->number(), bpf_message{})) return bpf_fail("cannot send to the monitor's server");
  auto got = hear(*socket);
  if (!got) return tl::unexpected(got.error());
  if (!got->ring) return fail(errc::out_of_resources, "cannot receive the descriptors of the monitor's server");
  return bpf_subscription{std::move(got->ring), got->message.first_generation, std::move(got->links),
                          std::move(*socket)};
}

}  // namespace pinfold::monitors
