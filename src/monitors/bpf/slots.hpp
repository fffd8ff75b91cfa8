// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The address spaces that one set of kernel programs serves: each has a slot with a ring of its own.
#pragma once

#include "monitors/bpf/layout.h"
#include "monitors/bpf/programs.hpp"
#include "os/file.hpp"

#include <pinfold/error.hpp>

#include <bitset>
#include <cstdint>
#include <span>

namespace pinfold::monitors {

/// A ring that an address space may claim with the secret.
struct bpf_slot {
  pinfold_secret secret{};
  os::file ring;
  std::uint64_t first_generation = 0;
  std::uint64_t reservation = 0;
  std::uint32_t number = 0;
};

/// Passes the secret to the kernel programs, with this process's address space. The caller finds out only from the ring
/// whether they received it.
void bpf_accept(const pinfold_secret& secret) noexcept;

/// Not thread-safe. The destructor leaves the slots as they are: the programs still serve an address space that has a
/// slot and the links.
class bpf_slots {
 public:
  /// Loads the programs; the errors are those of `bpf_programs::load`.
  [[nodiscard]] static result<bpf_slots> load() noexcept;
  bpf_slots(bpf_slots&& other) noexcept;
  bpf_slots& operator=(bpf_slots&&) = delete;
  ~bpf_slots();

  [[nodiscard]] const bpf_links& links() const noexcept { return programs_.links; }
  [[nodiscard]] bpf_links take_links() noexcept { return std::move(programs_.links); }

  /// Reserves a slot with a fresh ring, for the first process that passes the secret. Its number is reserved until
  /// `release`, also after the address space that took it has ended. `out_of_resources` if no slot is free.
  [[nodiscard]] result<bpf_slot> reserve() noexcept;
  /// The same for up to `most_at_once` processes, in the time that one takes.
  void reserve(std::span<result<bpf_slot>> made) noexcept;
  static constexpr std::size_t most_at_once = 16;

  /// Returns the answer to the secret. From then on no process can use the secret.
  [[nodiscard]] result<pinfold_invitation> answer(const bpf_slot& at) noexcept;

  /// Returns whether an address space has taken the slot.
  [[nodiscard]] bool is_taken(const bpf_slot& at) const noexcept;
  /// Returns what changes when the slot becomes free, or has another owner.
  [[nodiscard]] std::uint64_t owner_of(std::uint32_t number) const noexcept;

  /// Closes the ring for every process that maps it. The slot is free as soon as the address space that took it ends or
  /// takes another slot; the ring's memory, when another slot has its number.
  void release(bpf_slot& at) noexcept;

 private:
  bpf_slots(bpf_programs programs, std::uint64_t* owners) noexcept : programs_(std::move(programs)), owners_(owners) {}
  [[nodiscard]] bool replace(std::uint32_t number, std::uint64_t before, std::uint64_t now) noexcept;
  [[nodiscard]] bool find_free(bpf_slot& at) noexcept;
  [[nodiscard]] result<bpf_slot> prepare() noexcept;

  bpf_programs programs_;
  std::uint64_t* owners_;  ///< mapped; the kernel programs compare and swap there, too
  std::bitset<pinfold_slots> reserved_;
  std::uint64_t reservations_ = 1;
};

}  // namespace pinfold::monitors
