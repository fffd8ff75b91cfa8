// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/server.hpp"

#include "fd_passing/client.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <functional>
#include <sys/socket.h>

namespace pinfold::fd_passing {

namespace {

constexpr int accepts_a_round = 16;  // connected importers are served first
constexpr int rest_milliseconds = 50;
constexpr int poll_milliseconds = 1000;  // the program may close all descriptors just before a poll, and reuse them
constexpr std::ptrdiff_t most_strangers = 16;
constexpr int send_buffer_bytes = 4096;  // a few replies: a peer that reads none must not collect descriptors

reply exhausted(std::uint64_t serial, int native) noexcept {
  return {.serial = serial, .state = reply_state::exhausted, .native = native};
}

reply refusal(std::uint64_t serial, const error& why) noexcept {
  if (why == errc::stale_handle) return {.serial = serial, .state = reply_state::freed};
  return {.serial = serial, .state = reply_state::failed, .code = why.code, .kind = why.kind, .native = why.native};
}

}  // namespace

result<std::unique_ptr<server>> server::start(std::uint64_t exporter, std::shared_ptr<fd_provider> from,
                                              file& listener) noexcept try {
  if (!listener) {
    auto at = listen_at(exporter, socket_purpose::descriptors);
    if (!at) return tl::unexpected(at.error());
    listener = std::move(*at);
  }
  std::unique_ptr<server> made(new server(exporter, os::refuse_descriptors(listener), std::move(from)));
  made->listener_ = std::move(listener);
  if (auto started = made->thread_.start("pinfold-export", run, made.get()); !started) {
    listener = std::move(made->listener_);
    return tl::unexpected(started.error());
  }
  return made;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the exporter's server");
}

server::server(std::uint64_t exporter, bool closes_at_once, std::shared_ptr<fd_provider> from)
    : exporter_(exporter), provider_(std::move(from)), closer_(closes_at_once) {
  clients_.reserve(most_clients);
  watched_.reserve(most_clients + 2);
}

server::~server() {
  const detail::no_cancellation whole;
  if (provider_->inherited() || !listener_) return;
  // After the program has closed the thread's sockets, a poll that began before watches the listener alone.
  if (!thread_.wake_end().still_there())
    static_cast<void>(
        connect_to({.exporter = exporter_, .start_time = 0, .pid = 0}, socket_purpose::descriptors, late_patience));
  thread_.stop();
  if (listener_.still_there()) ::shutdown(listener_.number(), SHUT_RDWR);
  while (!clients_.empty()) drop(clients_.end() - 1);
  closer_.close(std::move(listener_));  // also closes the connections that it did not accept
}

void server::run(void* self) noexcept { static_cast<server*>(self)->loop(); }

void server::loop() noexcept {
  while (wait()) {
    ++round_;
    serve_all();
    accept_some();
  }
}

/// Waits for the next event. Returns false if the server must stop.
bool server::wait() noexcept {
  if (thread_.stops() || !thread_.wake_end().still_there()) return false;
  watched_.clear();
  watched_.push_back({.fd = thread_.wake_end().number(), .events = POLLIN, .revents = 0});
  watched_.push_back({.fd = resting_ || !listening_ ? -1 : listener_.number(), .events = POLLIN, .revents = 0});
  for (const client& peer : clients_) {
    watched_.push_back({.fd = peer.socket.number(), .events = POLLIN, .revents = 0});
  }
  const int ready = ::poll(watched_.data(), watched_.size(), resting_ ? rest_milliseconds : poll_milliseconds);
  if (ready >= 0) return watched_[0].revents == 0;
  return recover();
}

/// Recovers from a failed poll: no memory, or a descriptor limit below the number of open descriptors. Returns the
/// result for `wait`.
bool server::recover() noexcept {
  std::ranges::for_each(watched_, [](pollfd& one) { one.revents = 0; });
  ::usleep(1000 * rest_milliseconds);
  if (thread_.stops()) return false;
  drop_most_silent();
  return true;
}

void server::serve_all() noexcept {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (watched_[i + 2].revents != 0 && !serve(clients_[i])) hang_up(clients_[i]);
  }
  std::erase_if(clients_, [](const client& peer) { return !peer.socket; });
}

/// Serves one request. Returns false if the connection must be closed.
bool server::serve(client& peer) noexcept {
  if (!peer.socket.still_there()) return false;  // the number now belongs to a file of the program: do not read it
  if (!peer.permitted && os::next_has_descriptors(peer.socket)) return false;  // receiving would close them
  request received{};
  const ssize_t bytes = ::recv(peer.socket.number(), &received, sizeof received, MSG_DONTWAIT | MSG_TRUNC);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes != sizeof received || received.magic != wire_magic) return false;
  peer.last_round = round_;
  return answer(peer, received.serial) == 0 && peer.permitted;
}

int server::answer(const client& peer, std::uint64_t serial) noexcept {
  reply plain{.serial = serial, .state = reply_state::refused, .native = EPERM};
  if (!peer.permitted) return send_reply(peer.socket, plain, -1);
  int native = 0;
  // Sends while the descriptor is lent: later the number could refer to another file.
  const auto send = [&](int descriptor) {
    native = send_reply(peer.socket, {.serial = serial, .state = reply_state::granted}, descriptor);
  };
  const auto lent = provider_->lend(serial, std::ref(send));  // a reference needs no memory
  if (lent && (native == 0 || os::code_for(native) != errc::out_of_resources)) return native;
  return send_reply(peer.socket, lent ? exhausted(serial, native) : refusal(serial, lent.error()), -1);
}

void server::accept_some() noexcept {
  const bool waiting = watched_[1].revents != 0;
  if (waiting && !listener_.still_there()) listening_ = false;  // else poll would report it again at once
  resting_ = !closer_.has_room();
  for (int i = 0; waiting && listening_ && !resting_ && i < accepts_a_round && accept_one(); ++i) {
  }
}

/// Accepts one connection. Returns false when none is waiting, or when there is no descriptor for it.
bool server::accept_one() noexcept {
  file socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (os::code_for(errno) != errc::out_of_resources || errno == EAGAIN) return false;
    drop_most_silent();
    resting_ = true;
    return false;
  }
  const int bytes = send_buffer_bytes;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  const auto importer = os::other_end(socket);
  if (!importer) return closer_.close(std::move(socket)), true;  // the importer connects again
  const bool permitted = os::is_trusted(socket, *importer).value_or(false);
  if (!make_room(permitted)) return closer_.close(std::move(socket)), true;
  clients_.push_back({std::move(socket), permitted, round_});
  return true;
}

/// Makes room for another peer. Returns false where one that is served would have to go for one that is not.
bool server::make_room(bool permitted) noexcept {
  const auto strangers = std::ranges::count(clients_, false, &client::permitted);
  if (!permitted && strangers >= most_strangers)
    return drop(std::ranges::find(clients_, false, &client::permitted)), true;
  if (clients_.size() < most_clients) return true;
  if (!permitted && strangers == 0) return false;
  drop_most_silent();
  return true;
}

/// One that is not served, if there is one.
void server::drop_most_silent() noexcept {
  const auto order = [](const client& peer) { return std::pair(peer.permitted, peer.last_round); };
  const auto silent = std::ranges::min_element(clients_, {}, order);
  if (silent != clients_.end()) drop(silent);
}

void server::drop(std::vector<client>::iterator peer) noexcept {
  hang_up(*peer);
  clients_.erase(peer);
}

// A forked child may have the socket: the peer would wait for an answer.
void server::hang_up(client& peer) noexcept {
  file ended = std::move(peer.socket);
  if (ended.still_there()) ::shutdown(ended.number(), SHUT_RDWR);
  if (!peer.permitted) closer_.close(std::move(ended));
}

}  // namespace pinfold::fd_passing
