// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The exporter's record of the importers that hold its memory.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/release/message.hpp>
#include <pinfold/release/retirement.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace pinfold {

/// Knows which importers hold which memory of one exporter. Sends nothing: the caller carries the messages, on any
/// channel that keeps their order, and numbers its peers as it likes. Thread-safe; not for use in a forked child.
///
/// An importer counts from `lend`, or from the `admitted` that `receive` returns, until its answer `gone` or `unknown`,
/// or until `died`. After `begin_retire` no importer is added.
class PINFOLD_EXPORT release_registry {
 public:
  /// Makes the registry of the exporter with that number. Throws `std::bad_alloc`.
  explicit release_registry(std::uint64_t exporter);
  release_registry(const release_registry&) = delete;
  release_registry& operator=(const release_registry&) = delete;
  ~release_registry();

  /// Adds memory that importers may open. Errors: `out_of_resources`.
  result<void> add(std::uint64_t serial) noexcept;

  /// Counts the peer as an importer: call it before the peer gets the handle. Errors: `stale_handle` (not added,
  /// retired, or forgotten), `out_of_resources`.
  result<void> lend(std::uint64_t serial, std::uint64_t peer, std::int32_t pid = 0) noexcept;

  /// Begins a retirement: counts no further importer; `next_request` returns a request for each counted one.
  /// Returns the number of the retirement. Errors: `stale_handle` (not added, retired, or forgotten).
  result<std::uint64_t> begin_retire(std::uint64_t serial, std::chrono::milliseconds timeout) noexcept;

  /// Returns a request that the peer has not been sent yet, and counts it as sent; nothing if there is none.
  [[nodiscard]] std::optional<release_message> next_request(std::uint64_t peer) noexcept;

  /// Counts the request as not sent: `next_request` returns it again.
  void take_back(std::uint64_t peer, const release_message& request) noexcept;

  /// Processes a message of the peer, and returns the message to send to it, if any. Ignores messages of a kind that
  /// importers do not send, and those of other exporters.
  [[nodiscard]] std::optional<release_message> receive(std::uint64_t peer, const release_message& message,
                                                       std::int32_t pid = 0) noexcept;

  /// Removes the peer everywhere, because its process has ended. Returns how many buffers the peer held.
  std::size_t died(std::uint64_t peer) noexcept;

  /// Notes that the peer cannot answer, though its process may run on. Returns whether it holds memory.
  bool lost(std::uint64_t peer) noexcept;

  /// Returns whether, since the last call, the last importer of any retired memory let it go, or memory was retired
  /// that had none.
  [[nodiscard]] bool any_released() noexcept;

  /// Returns whether an importer holds the memory.
  [[nodiscard]] bool is_held(std::uint64_t serial) const noexcept;

  /// Returns the importers that hold the memory, and how many let it go. `state` is `freed` if none holds it. Errors:
  /// `stale_handle` (not added, or forgotten), `out_of_resources`.
  [[nodiscard]] result<retire_report> report(std::uint64_t serial) const noexcept;

  /// Waits until no importer holds the memory, or for `timeout`, at most 24 h; returns as `report` does.
  [[nodiscard]] result<retire_report> wait(std::uint64_t serial, std::chrono::milliseconds timeout) const noexcept;

  /// Waits until each importer that holds the memory has answered `leased`, or cannot answer, or for `timeout`, at most
  /// 24 h; returns as `report` does.
  [[nodiscard]] result<retire_report> wait_for_answers(std::uint64_t serial,
                                                       std::chrono::milliseconds timeout) const noexcept;

  /// Forgets memory that is freed: `opening` messages for it are refused.
  void forget(std::uint64_t serial) noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
