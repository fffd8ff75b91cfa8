// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Messages over a stream socket, without waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tool {

/// A descriptor with an owner.
class rma_socket {
 public:
  explicit rma_socket(int owned = -1) noexcept : number_(owned) {}
  rma_socket(rma_socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  rma_socket& operator=(rma_socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~rma_socket();
  [[nodiscard]] int number() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

/// The kind of a message.
enum class rma_word : std::uint32_t { hello = 1, data = 2, failure = 3 };

struct rma_message {
  rma_word word;
  std::string text;
};

/// One end of a connection. Input from other hosts is checked: a message has at most 16 MiB.
class rma_link {
 public:
  explicit rma_link(rma_socket connected);

  /// Queues the message, which `pump` sends.
  void send(rma_word word, std::string_view text);

  /// Sends and receives as much as possible without waiting. Throws `failure` when the other side breaks the protocol.
  void pump();

  [[nodiscard]] std::optional<rma_message> take();                        ///< the next message that has arrived whole
  [[nodiscard]] bool sent() const noexcept { return outgoing_.empty(); }  ///< whether nothing is queued
  [[nodiscard]] bool ended() const noexcept { return ended_; }            ///< whether the other side is gone
  [[nodiscard]] int number() const noexcept { return socket_.number(); }

 private:
  void receive();
  void transmit();

  rma_socket socket_;
  std::string incoming_, outgoing_;
  bool ended_ = false;
};

}  // namespace tool
