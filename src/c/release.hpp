// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The common part of both forms of the release protocol in C.
#pragma once

#include "c/failure.hpp"

#include <pinfold/release.h>
#include <pinfold/release/message.hpp>
#include <pinfold/release/retirement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pinfold::c {

inline constexpr auto no_place = "there is no place for the result, or it has a wrong size";

/// Returns whether the structure, which begins with its size, exists and is long enough.
template <class T>
[[nodiscard]] bool has_room(const T* place) noexcept {
  return place != nullptr && place->size >= sizeof(T);
}

[[nodiscard]] inline pinfold_retire_report in_c(const retire_report& from) noexcept {
  pinfold_retire_report made{};
  made.state = static_cast<std::uint32_t>(from.state);
  made.let_go = from.let_go;
  made.died = from.died;
  made.holders = from.holders.size();
  if (from.free_failed) made.failure = as_c(from.failure);
  return made;
}

/// Returns the message in the caller's bytes.
[[nodiscard]] inline result<release_message> message_in(const void* message, std::size_t bytes) noexcept {
  if (message == nullptr) return fail(errc::invalid_argument, "the message is null");
  return read_release_message({static_cast<const std::byte*>(message), bytes});
}

/// Writes at most `room` of the report's holders, and the number of all.
inline void write_holders(const retire_report& from, pinfold_release_holder* holders, std::size_t room,
                          std::size_t* count) noexcept {
  *count = from.holders.size();
  for (std::size_t i = 0; i < std::min(room, from.holders.size()); ++i) {
    const release_holder& one = from.holders[i];
    holders[i] = {one.peer, one.pid, static_cast<std::uint32_t>(one.state), one.lost ? 1U : 0U, 0};
  }
}

}  // namespace pinfold::c
