// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Keys that are given to peers, with a generation by which a peer sees that its key was withdrawn.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace pinfold {

/// What a peer needs to reach memory, and to see whether it still may.
struct remote_key_token {
  std::uint64_t address;     ///< where the memory begins, as the device expects it from peers
  std::uint64_t length;      ///< how many bytes
  std::uint64_t key;         ///< of the device: `rkey`
  std::uint64_t generation;  ///< odd; never issued again
  std::uint32_t slot;        ///< of the generation in the owner's table

  /// Returns whether all members are equal.
  friend bool operator==(const remote_key_token&, const remote_key_token&) noexcept = default;
};

/// The length of a token's wire form, in bytes.
inline constexpr std::size_t remote_key_wire_bytes = 48;
/// A token as it is sent: `docs/use/devices.md` describes the bytes.
using remote_key_wire = std::array<std::byte, remote_key_wire_bytes>;

/// Returns the wire form of a token.
[[nodiscard]] PINFOLD_EXPORT remote_key_wire encode(const remote_key_token& token) noexcept;

/// Reads a wire form. Errors: `invalid_handle` (another length, damaged, or not a token), `unsupported` (of a later
/// version).
[[nodiscard]] PINFOLD_EXPORT result<remote_key_token> decode_remote_key(std::span<const std::byte> wire) noexcept;

/// Returns whether a token is current by a copy of its owner's table, which the peer read or was sent: the table from
/// slot 0 on. False if the copy does not contain the token's slot. A token can be withdrawn right after the copy was
/// made; then only the device refuses its key.
[[nodiscard]] PINFOLD_EXPORT bool is_current(const remote_key_token& token,
                                             std::span<const std::uint64_t> generations) noexcept;

/// The generations of the keys that this process has given to peers: a table of 64-bit words, in the byte order of this
/// machine, which peers may read. A word is odd while its key is valid. Every issue and every withdrawal adds 1, so a
/// withdrawn token is never current again. A table begins with random numbers, so that tokens of an earlier process at
/// the same place are not current either.
///
/// Every member may be called on any thread at any time. Copies share one table. In a child of fork, which has none of
/// the parent's keys, `issue` and `withdraw` return `closed`.
class PINFOLD_EXPORT remote_key_table {
 public:
  /// Makes a table in memory of its own, in whole pages. Errors: `invalid_argument` (no slots, or more than 2^32 - 1),
  /// `out_of_resources`.
  [[nodiscard]] static result<remote_key_table> create(std::size_t slots = 1024) noexcept;

  /// Makes a table in the caller's memory, which must outlive it, such as memory that peers have mapped. Errors: as
  /// above.
  [[nodiscard]] static result<remote_key_table> create_in(std::span<std::uint64_t> words) noexcept;

  /// Returns the words, to be registered for reading by peers, or sent to them.
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept;

  /// Makes a token for a key. Errors: `invalid_range` (no bytes, or it wraps around), `out_of_resources` (every slot
  /// has a valid key).
  [[nodiscard]] result<remote_key_token> issue(std::uint64_t address, std::uint64_t length, std::uint64_t key) noexcept;

  /// Invalidates a token of this table: once this returns, no reader of the table takes it for current. Has no effect
  /// on the device. Errors: `stale_handle` (withdrawn before), `invalid_argument` (not of this table).
  [[nodiscard]] result<void> withdraw(const remote_key_token& token) noexcept;

  /// Returns whether the token is current.
  [[nodiscard]] bool valid(const remote_key_token& token) const noexcept;

  /// Returns how many tokens are current.
  [[nodiscard]] std::size_t count() const noexcept;

 private:
  struct state;
  explicit remote_key_table(std::shared_ptr<state> made) noexcept;
  std::shared_ptr<state> state_;
};

}  // namespace pinfold
