// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The shared memory of an account. Every process that maps it may die, or stop, at any instruction.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::node {

inline constexpr std::uint64_t account_magic = 0x31747067646f6670U;
inline constexpr std::uint32_t account_version = 1;
/// The unit of all amounts in the account, in bytes.
inline constexpr std::size_t unit = 4096;
inline constexpr std::size_t most_members = 256;

/// The amount that all members have taken, in units, and a number that changes with each change of the amount. By the
/// number, a process that sums up the slots can detect a change meanwhile.
struct total {
  static constexpr unsigned number_bits = 24;
  static constexpr std::uint64_t most_units = (std::uint64_t{1} << (64U - number_bits)) - 1;

  std::uint64_t units;
  std::uint64_t number;

  [[nodiscard]] static constexpr total of(std::uint64_t word) noexcept {
    return {word >> number_bits, word & ((std::uint64_t{1} << number_bits) - 1)};
  }
  /// Returns the word that follows this one, with another amount.
  [[nodiscard]] constexpr std::uint64_t next(std::uint64_t amount) const noexcept {
    return amount << number_bits | ((number + 1) & ((std::uint64_t{1} << number_bits) - 1));
  }
};

/// The slot of one member. Its owner holds a lock on the slot's first byte in the file, which the kernel drops when the
/// owner dies. Only the holder of that lock writes the slot; `membership::reclaim` locks and writes that of a dead
/// member.
///
/// While `pending` is 0, the slot's part of the total is `units`. A member that changes both sets `pending` first, so
/// that others detect its death in between.
struct alignas(128) slot {
  std::atomic<std::uint64_t> owner;    ///< not 0: taken; unique to the membership
  std::atomic<std::int64_t> pending;   ///< the units that are being added to the total
  std::atomic<std::uint64_t> units;    ///< taken from the account
  std::atomic<std::uint64_t> process;  ///< the PID that the owner has in its namespace
  std::atomic<std::uint64_t> started;  ///< when that process started, in clock ticks since the boot
  std::atomic<std::uint64_t> stack;    ///< where its stack began: changes with exec(2)
  std::atomic<std::uint64_t> namespace_of_process;
  std::atomic<std::int64_t> waiting_since;  ///< the start of a request's wait: monotonic clock, in ns; 0: none waits
  std::atomic<std::int64_t> wants_until;    ///< the same clock: until then, other members should make room for this one
  std::atomic<std::uint64_t> asked;         ///< bytes of the last request without room
  std::atomic<std::uint64_t> refused;
  std::array<std::atomic<std::uint64_t>, 4> name;
  std::atomic<std::uint64_t> waits_for;  ///< the bytes of this request, if it may have its turn; else 0
};

/// The whole file.
struct account {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slot_bytes;
  std::uint32_t slots;
  std::uint32_t bytes_of_unit;
  alignas(128) std::atomic<std::uint64_t> taken;  ///< a `total`
  alignas(128) std::atomic<std::uint64_t> max_units;
  alignas(128) std::atomic<std::int64_t> wanted_until;  ///< the latest `wants_until`, as a hint
  std::array<slot, most_members> members;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would be in one process only");
static_assert(sizeof(slot) == 128 && sizeof(account) == 512 + most_members * 128, "the layout is that of the version");

}  // namespace pinfold::node
