// SPDX-License-Identifier: BSD-3-Clause
#include "release/server.hpp"

#include "fd_passing/wire.hpp"
#include "os/check.hpp"
#include "os/deadline.hpp"
#include "os/no_cancellation.hpp"
#include "release/steps.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <sys/socket.h>
#include <utility>

namespace pinfold::release {

namespace {

using namespace std::chrono_literals;

constexpr auto poll_interval = 1000ms;  // the program may close descriptors just before a poll
constexpr auto rest = 50ms;
constexpr int accepts_a_round = 16;   // processes that are not admitted do not fill the list of importers
constexpr int messages_a_round = 64;  // so that no importer delays another for long
constexpr int most_unread = 4096;     // more than fits in a socket's buffer

/// Without a pidfd, the end of the connection counts as that of the process. So the server rejects an importer whose
/// pidfd only lacks a free descriptor here, or whose process has ended, or may have ended.
bool end_is_noticed(const endpoint& at) noexcept {
  return at.no_process != ESRCH && at.no_process != ENOTCONN && os::code_for(at.no_process) != errc::out_of_resources;
}

}  // namespace

result<server_owner> server::start(std::uint64_t exporter, std::size_t limbo_bytes, os::file listener) noexcept try {
  auto at = listener ? result<os::file>(std::move(listener))
                     : fd_passing::listen_at(exporter, fd_passing::socket_purpose::release);
  if (!at) return tl::unexpected(at.error());
  server_owner made(new server(exporter, limbo_bytes, std::move(*at)));
  if (auto started = made->retirements_->start(); !started) return tl::unexpected(started.error());
  if (auto started = made->thread_.start("pinfold-release", run, made.get()); !started)
    return tl::unexpected(started.error());
  return made;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the exporter's server");
}

server::server(std::uint64_t exporter, std::size_t limbo_bytes, os::file listener)
    : registry_(std::make_shared<release_registry>(exporter)),
      retirements_(std::make_shared<retirements>(registry_, limbo_bytes)),
      listener_(std::move(listener)),
      closer_(os::refuse_descriptors(listener_)) {
  importers_.reserve(most_importers);
  watched_.reserve(2 * most_importers + 2);
}

server::~server() {
  if (os::this_process() != process_) {
    retirements_->leave_to_parent();
    return;
  }
  const detail::no_cancellation whole;
  thread_.stop();
  reach(step::exporter_ending);
  hang_up();
  closer_.close(std::move(listener_));  // also closes the connections that it did not accept
  reach(step::exporter_ended);
  retirements_->abandon();
}

/// Shuts down the sockets, which a forked child may have open: otherwise importers would not detect the end.
void server::hang_up() const noexcept {
  if (listener_.still_there()) ::shutdown(listener_.number(), SHUT_RDWR);
  for (const importer& one : importers_) one.at.hang_up();
}

result<retirement> server::begin(std::uint64_t serial, std::size_t bytes, std::chrono::milliseconds timeout,
                                 free_call& free) noexcept {
  const detail::no_cancellation whole;
  auto begun = retirements_->begin(serial, bytes, timeout, free);
  if (!begun) return tl::unexpected(begun.error());
  reach(step::exporter_retiring);
  thread_.wake();
  return retirement(retirements_, std::move(*begun));
}

result<std::size_t> server::announce(std::span<const std::uint64_t> serials,
                                     std::chrono::milliseconds timeout) noexcept {
  const detail::no_cancellation whole;
  const auto deadline = os::deadline_in(timeout, std::chrono::days{1});
  result<std::size_t> holders = 0;
  for (const auto serial : serials) {
    free_call by_the_program = [] { return result<void>{}; };
    const auto begun = retirements_->begin(serial, 0, timeout, by_the_program);
    if (!begun && begun.error() != errc::stale_handle) holders = tl::unexpected(begun.error());
  }
  reach(step::exporter_retiring);
  thread_.wake();
  for (const auto serial : serials) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    const auto seen = registry_->wait_for_answers(serial, left);
    if (holders && seen) *holders += seen->holders.size();
  }
  return holders;
}

void server::run(void* self) noexcept { static_cast<server*>(self)->loop(); }

void server::loop() noexcept {
  while (thread_.goes_on()) {
    for (importer& one : importers_) serve(one);
    std::erase_if(importers_, [](const importer& one) { return one.number == 0; });
    accept_some();
    retirements_->settle();
    wait();
  }
}

void server::wait() noexcept {
  PINFOLD_ASSERT(2 * importers_.size() + 2 <= watched_.capacity(),
                 "the list of descriptors has room for every importer");
  watched_.clear();
  watched_.push_back({.fd = watchable(thread_.wake_end()), .events = POLLIN, .revents = 0});
  const bool room = !resting_ && importers_.size() < most_importers && closer_.has_room();
  watched_.push_back({.fd = room ? watchable(listener_) : -1, .events = POLLIN, .revents = 0});
  for (const importer& one : importers_) {
    // The server does not read from an importer that does not read its answers.
    const short events = static_cast<short>((one.unsent ? 0 : POLLIN) | (one.waits_for_room ? POLLOUT : 0));
    watched_.push_back({.fd = one.broken ? -1 : watchable(one.at.socket), .events = events, .revents = 0});
    watched_.push_back({.fd = watchable(one.at.process), .events = POLLIN, .revents = 0});
  }
  const auto left = retirements_->next_deadline(resting_ || !closer_.has_room() ? rest : poll_interval);
  resting_ = false;
  if (::poll(watched_.data(), watched_.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
    ::usleep(std::chrono::microseconds(rest).count());  // no memory, or a descriptor limit below the number in use
}

void server::serve(importer& one) noexcept {
  PINFOLD_ASSERT(one.number != 0, "an importer that has ended is not served");
  const bool ended = one.at.process_ended();  // before the last messages are read
  const bool was_broken = one.broken;
  if (!one.broken) read(one);
  if (!one.broken) write(one);
  if (one.broken && !was_broken) read_rest(one);
  if (ended || (one.broken && !one.at.process)) end(one);
  if (one.number != 0 && one.broken && !registry_->lost(one.number)) one.number = 0;  // holds nothing
}

void server::read(importer& one) noexcept {
  for (int i = 0; i < messages_a_round && !one.unsent; ++i) {
    release_message message;
    const auto got = one.at.receive(message);
    if (got == endpoint::received::none) return;
    if (got == endpoint::received::broken) {
      one.broken = true;
      return;
    }
    const bool opening = message.kind == release_kind::opening;
    reach(opening ? step::exporter_opening : step::exporter_answered);
    const auto reply = registry_->receive(one.number, message, one.at.pid);
    reach(opening ? step::exporter_admitting : step::exporter_counted);
    if (!reply) continue;
    if (send(one, *reply)) {
      reach(step::exporter_admitted);
    } else {
      one.unsent = reply;
    }
  }
}

/// Reads what the importer sent before it closed the connection. Since the last read the importer may have let memory
/// go and closed the connection, which the server detected when it sent a request.
void server::read_rest(importer& one) noexcept {
  release_message message;
  for (int i = 0; i < most_unread && one.at.receive(message) == endpoint::received::message; ++i)
    static_cast<void>(registry_->receive(one.number, message, one.at.pid));
}

void server::write(importer& one) noexcept {
  one.waits_for_room = false;
  if (one.unsent) {
    if (!send(one, *one.unsent)) return;
    one.unsent.reset();
  }
  while (const auto next = registry_->next_request(one.number)) {
    reach(step::exporter_requesting);
    if (send(one, *next)) {
      reach(step::exporter_requested);
      continue;
    }
    registry_->take_back(one.number, *next);
    return;
  }
}

/// Returns true if the message needs no further attempt: it is sent, or the connection is broken.
bool server::send(importer& one, const release_message& message) noexcept {
  switch (one.at.send(message)) {
    case endpoint::sent::done: return true;
    case endpoint::sent::full: one.waits_for_room = true; return false;
    case endpoint::sent::broken: return true;  // `read` finds the end, behind the last messages
  }
  return false;
}

void server::end(importer& one) noexcept {
  PINFOLD_ASSERT(one.number != 0, "an importer ends once");
  reach(step::exporter_bereaved);
  retirements_->died(one.number);
  one.number = 0;
}

/// Returns whether a process has its share of the connections: one for each of its listeners, which leaves room for
/// others. All processes outside this one's PID namespace are process 0, and have no share.
bool server::has_many(pid_t process) const noexcept {
  return process != 0 && std::ranges::count_if(importers_, [&](const importer& one) {
                           return one.at.pid == process;
                         }) >= most_of_a_process;
}

/// Accepts only if the last poll found connections. Where no descriptor is free for one, connected importers are served
/// meanwhile.
void server::accept_some() noexcept {
  if (watched_.empty() || watched_[1].revents == 0) return;  // the first round has not polled
  for (int i = 0; i < accepts_a_round; ++i) {
    if (importers_.size() == most_importers || !listener_.still_there() || !closer_.has_room()) return;
    os::file socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      resting_ = os::code_for(errno) == errc::out_of_resources && errno != EAGAIN;
      return;
    }
    auto at = endpoint::of(std::move(socket));
    if (!at.permitted || !end_is_noticed(at) || has_many(at.pid)) {
      closer_.close(std::move(at.socket));
      continue;
    }
    PINFOLD_ASSERT(importers_.size() < importers_.capacity(), "the list of importers has room from the start");
    importers_.push_back({++last_number_, std::move(at), std::nullopt});
    reach(step::exporter_accepted);
  }
}

}  // namespace pinfold::release
