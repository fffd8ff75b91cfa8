// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/link.hpp"

#include "cli/failure.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace tool {
namespace {

constexpr std::size_t most = std::size_t{16} << 20U;

// In the byte order of the host: ranks of different order would misread the verified bytes, too.
struct head {
  std::uint32_t word;
  std::uint32_t bytes;
};

head head_of(const std::string& text) {
  head read{};
  std::memcpy(&read, text.data(), sizeof read);
  return read;
}

void check(const head& read) {
  const bool known = read.word >= static_cast<std::uint32_t>(rma_word::hello) &&
                     read.word <= static_cast<std::uint32_t>(rma_word::failure);
  if (!known || read.bytes > most) throw failure("the other side is not pinfold perf rma");
}

}  // namespace

rma_socket::~rma_socket() {
  if (number_ >= 0) ::close(number_);
}

rma_link::rma_link(rma_socket connected) : socket_(std::move(connected)) {
  if (::fcntl(socket_.number(), F_SETFL, O_NONBLOCK) != 0)
    throw failure(fmt::format("cannot make a socket non-blocking: {}", std::generic_category().message(errno)));
}

void rma_link::send(rma_word word, std::string_view text) {
  if (text.size() > most) throw failure("too_large: a message between ranks exceeds 16 MiB");
  const head header{static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(text.size())};
  outgoing_.append(reinterpret_cast<const char*>(&header), sizeof header).append(text);
}

void rma_link::transmit() {
  while (!outgoing_.empty()) {
    const auto gone = ::send(socket_.number(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (gone < 0 && errno == EINTR) continue;
    if (gone < 0) {
      ended_ = ended_ || errno != EAGAIN;
      return;
    }
    outgoing_.erase(0, static_cast<std::size_t>(gone));
  }
}

// Receives at most one message at a time: a peer that sends without end would keep this rank from all other work.
void rma_link::receive() {
  std::array<char, 65536> buffer{};
  while (!ended_ && incoming_.size() < sizeof(head) + most) {
    const auto got = ::recv(socket_.number(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) ended_ = true;
    if (got > 0) incoming_.append(buffer.data(), static_cast<std::size_t>(got));
    if (incoming_.size() >= sizeof(head)) check(head_of(incoming_));
  }
}

void rma_link::pump() {
  transmit();
  receive();
}

std::optional<rma_message> rma_link::take() {
  if (incoming_.size() < sizeof(head)) return std::nullopt;
  const auto header = head_of(incoming_);
  check(header);
  if (incoming_.size() - sizeof header < header.bytes) return std::nullopt;
  rma_message taken{static_cast<rma_word>(header.word), incoming_.substr(sizeof header, header.bytes)};
  incoming_.erase(0, sizeof header + header.bytes);
  return taken;
}

}  // namespace tool
