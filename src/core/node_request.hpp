// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A request for room in the node's budget, from the first refusal to its end.
#pragma once

#include "node_budget/membership.hpp"

#include <cstddef>

namespace pinfold::core {

/// The notices of one request to the node's budget, which it withdraws at its end. Without a node's budget, none.
class node_request {
 public:
  node_request(node::membership* node, std::size_t bytes) noexcept : node_(node), waiting_{.bytes = bytes} {
    if (node_ != nullptr) node_->begin_request();
  }
  ~node_request() {
    if (waits_) node_->end_waiting(waiting_);
    if (node_ != nullptr) node_->end_request();
  }
  node_request(const node_request&) = delete;
  node_request& operator=(const node_request&) = delete;

  [[nodiscard]] node::membership* node() const noexcept { return node_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return waiting_.bytes; }
  /// Returns whose turn it is to take the room that this request needs.
  [[nodiscard]] node::turn whose_turn() const noexcept { return node_->whose_turn(waiting_.bytes, &waiting_); }
  void note_turn() noexcept { node_->note_turn(waiting_); }
  void note_refusal() noexcept { node_->note_refusal(waiting_); }
  /// Lists the request as waiting. Returns whether this is the first call.
  [[nodiscard]] bool begin_waiting() noexcept {
    if (waits_) return false;
    node_->begin_waiting(waiting_);
    return waits_ = true;
  }

 private:
  node::membership* node_;
  node::waiting_request waiting_;
  bool waits_ = false;
};

}  // namespace pinfold::core
