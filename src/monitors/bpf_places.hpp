// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Who is served by one set of kernel programs: each address space has a place, and at the place a ring of its own.
#pragma once

#include "monitors/bpf_descriptor.hpp"
#include "monitors/bpf_layout.h"
#include "monitors/bpf_programs.hpp"

#include <pinfold/error.hpp>

#include <cstdint>

namespace pinfold::monitors {

/// A ring that an address space may take with the secret.
struct bpf_place {
  pinfold_secret secret{};
  bpf_descriptor ring;
  std::uint64_t first_generation = 0;
  std::uint64_t reservation = 0;
  std::uint32_t number = 0;
};

/// Says the secret, with this process's address space. Whether it was heard shows in the ring alone.
void bpf_accept(const pinfold_secret& secret) noexcept;

/// Not thread-safe. Closing it leaves the places as they are: who has one and the links goes on being served.
class bpf_places {
 public:
  /// `bpf_programs::load` and its errors.
  [[nodiscard]] static result<bpf_places> load() noexcept;
  bpf_places(bpf_places&& other) noexcept;
  bpf_places& operator=(bpf_places&&) = delete;
  ~bpf_places();

  [[nodiscard]] const bpf_links& links() const noexcept { return programs_.links; }
  [[nodiscard]] bpf_links take_links() noexcept { return std::move(programs_.links); }

  /// A fresh ring, for who says the secret first. `out_of_resources` when no place is free.
  [[nodiscard]] result<bpf_place> reserve() noexcept;

  /// What came of the secret. From then on nobody can accept it any more.
  [[nodiscard]] result<pinfold_invitation> answer(const bpf_place& at) noexcept;

  /// Whether there is an address space that has taken it.
  [[nodiscard]] bool is_taken(const bpf_place& at) const noexcept;

  /// Whoever has the ring finds it closed, and nothing more is recorded there. The place is free as soon as the address
  /// space that took it ends, or takes another.
  void release(bpf_place& at) noexcept;

 private:
  bpf_places(bpf_programs programs, std::uint64_t* owners) noexcept : programs_(std::move(programs)), owners_(owners) {}
  [[nodiscard]] bool replace(std::uint32_t number, std::uint64_t before, std::uint64_t now) noexcept;
  [[nodiscard]] bool find_free(bpf_place& at) noexcept;

  bpf_programs programs_;
  std::uint64_t* owners_;  ///< mapped; the kernel programs compare and swap there too
  std::uint64_t reservations_ = 1;
};

}  // namespace pinfold::monitors
