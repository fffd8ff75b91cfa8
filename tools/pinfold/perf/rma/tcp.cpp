// SPDX-License-Identifier: BSD-3-Clause
// Ranks that meet at a TCP port of rank 0.
#include "cli/failure.hpp"
#include "perf/rma/options.hpp"
#include "perf/rma/star.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>

namespace tool {
namespace {

using clock = std::chrono::steady_clock;
constexpr const char* greeting = "pinfold perf rma 1";  // of the protocol
constexpr std::chrono::seconds hello_timeout{5};

std::string last_problem() { return std::generic_category().message(errno); }

clock::duration seconds(double count) {
  return std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(count));
}

void set(int socket, int level, int option) {
  const int on = 1;
  ::setsockopt(socket, level, option, &on, sizeof on);  // each option is a convenience
}

std::string own_address(int socket) {
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &bytes) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) !=
          0)
    return {};
  const std::string address = text.data();
  constexpr std::string_view mapped = "::ffff:";  // the prefix of an IPv4 client on a socket for both families
  return address.starts_with(mapped) ? address.substr(mapped.size()) : address;
}

// Waits until there is something to read, or the end; returns whether there is.
bool readable(int socket, clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now()).count();
    pollfd one{socket, POLLIN, 0};
    if (::poll(&one, 1, static_cast<int>(std::clamp<long>(left, 0, 60'000))) > 0) return true;
    if (left <= 0) return false;
  }
}

// Returns the other side's first message; nothing when it is another program's, or none.
std::optional<std::string> hello_from(rma_link& link, clock::time_point end) try {
  for (;;) {
    auto message = link.take();
    if (message) return message->word == rma_word::hello ? std::optional(std::move(message->text)) : std::nullopt;
    if (link.ended() || !readable(link.number(), end)) return std::nullopt;
    link.pump();
  }
} catch (const failure&) {
  return std::nullopt;
}

struct address_list {
  addrinfo* first = nullptr;
  address_list(const char* host, unsigned port, int flags) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = flags;
    const int problem = ::getaddrinfo(host, fmt::to_string(port).c_str(), &wanted, &first);
    if (problem != 0) throw failure(fmt::format("{}: {}", host, ::gai_strerror(problem)));
  }
  address_list(const address_list&) = delete;
  address_list& operator=(const address_list&) = delete;
  ~address_list() { ::freeaddrinfo(first); }
};

// Returns a socket for IPv4 and IPv6; for IPv4 alone where there is no IPv6.
rma_socket bound_socket(unsigned port) {
  constexpr int kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;  // a client may be gone before accept
  rma_socket made(::socket(AF_INET6, kind, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = any.sin6_port;
  const int off = 0;
  if (made) {
    set(made.number(), SOL_SOCKET, SO_REUSEADDR);
    ::setsockopt(made.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(made.number(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0) return made;
  }
  made = rma_socket(::socket(AF_INET, kind, 0));
  set(made.number(), SOL_SOCKET, SO_REUSEADDR);
  if (!made || ::bind(made.number(), reinterpret_cast<sockaddr*>(&any4), sizeof any4) != 0)
    throw failure(fmt::format("cannot listen on port {}: {}", port, last_problem()));
  return made;
}

unsigned port_of(int socket) {
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &bytes);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);  // at the same place for both families
}

// Returns the next connection; an empty socket when the client is gone again.
rma_socket accepted(int listening) {
  rma_socket came(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  const bool of_this_host = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (!came && of_this_host) throw failure(fmt::format("out_of_resources: accept: {}", last_problem()));
  return came;
}

// Returns the link of the next rank; turns other clients away.
rma_link next_rank(int listening, clock::time_point end, std::size_t missing) {
  for (;;) {
    if (!readable(listening, end)) throw failure(fmt::format("timed_out: {} ranks did not connect", missing));
    rma_socket came = accepted(listening);
    if (!came) continue;
    set(came.number(), IPPROTO_TCP, TCP_NODELAY);
    rma_link link(std::move(came));
    if (hello_from(link, std::min(end, clock::now() + hello_timeout)) == greeting) return link;
    fmt::print(stderr, "pinfold: refused a connection from a program other than this version of pinfold perf rma\n");
  }
}

// Connects, again and again while the other side does not listen yet: either may be started first.
rma_socket connected_socket(const rma_options& options) {
  const address_list found(options.host.c_str(), options.port, AI_ADDRCONFIG);
  const auto end = clock::now() + seconds(options.timeout);
  int problem = 0;
  do {
    for (const auto* one = found.first; one != nullptr; one = one->ai_next) {
      rma_socket made(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!made) continue;
      problem = ::connect(made.number(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
      pollfd done{made.number(), POLLOUT, 0};
      socklen_t bytes = sizeof problem;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now()).count();
      if (problem == EINPROGRESS && ::poll(&done, 1, static_cast<int>(std::max<long>(left, 1))) > 0)
        ::getsockopt(made.number(), SOL_SOCKET, SO_ERROR, &problem, &bytes);
      if (problem == 0) return made;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (clock::now() < end);
  throw failure(fmt::format("{} port {}: {}", options.host, options.port, std::generic_category().message(problem)));
}

void flush(rma_link& link, clock::time_point end) {
  for (link.pump(); !link.sent() && !link.ended() && clock::now() < end; link.pump()) std::this_thread::yield();
}

}  // namespace

std::unique_ptr<rma_peers> listen_for_peers(const rma_options& options) {
  const auto listening = bound_socket(options.port);
  if (::listen(listening.number(), SOMAXCONN) != 0) throw failure(fmt::format("cannot listen: {}", last_problem()));
  fmt::print(stderr, "pinfold: listening on port {}\n", port_of(listening.number()));
  std::vector<rma_link> links;
  const auto end = clock::now() + seconds(options.wait);
  while (links.size() + 1 < options.ranks)
    links.push_back(next_rank(listening.number(), end, options.ranks - 1 - links.size()));
  for (std::size_t i = 0; i < links.size(); ++i) {
    links[i].send(rma_word::hello, fmt::format("{} {}", i + 1, options.ranks));
    flush(links[i], clock::now() + hello_timeout);
  }
  const auto address = links.empty() ? std::string("127.0.0.1") : own_address(links.front().number());
  return std::make_unique<star_peers>(star_peers::place{0, options.ranks, address, true}, std::move(links));
}

std::unique_ptr<rma_peers> connect_to_peers(const rma_options& options) {
  auto socket = connected_socket(options);
  set(socket.number(), IPPROTO_TCP, TCP_NODELAY);
  star_peers::place where{0, 0, own_address(socket.number()), true};
  std::vector<rma_link> links;
  links.emplace_back(std::move(socket));
  links.front().send(rma_word::hello, greeting);
  flush(links.front(), clock::now() + hello_timeout);
  const auto welcome = hello_from(links.front(), clock::now() + seconds(options.wait));
  if (!welcome || std::sscanf(welcome->c_str(), "%zu %zu", &where.rank, &where.ranks) != 2 || where.rank == 0 ||
      where.rank >= where.ranks)
    throw failure(fmt::format("{} port {}: this version of pinfold perf rma does not listen there, or has ended",
                              options.host, options.port));
  return std::make_unique<star_peers>(std::move(where), std::move(links));
}

}  // namespace tool
