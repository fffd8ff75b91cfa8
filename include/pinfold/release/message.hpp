// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages by which an exporter and its importers agree that memory may be freed. `docs/use/release-protocol.md`
/// says which message follows which.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfold {

/// Names one exported buffer for ever: the numbers are in its handle.
struct release_id {
  std::uint64_t exporter = 0;  ///< random number of the exporter object
  std::uint64_t serial = 0;    ///< counts the exporter's memory, never reused
  friend auto operator<=>(const release_id&, const release_id&) noexcept = default;
};

/// What a message is.
enum class release_kind : std::uint8_t {
  opening = 1,   ///< importer: it is about to open the memory, and waits for `admitted`
  admitted = 2,  ///< exporter: it counts the importer, which may open the memory
  refused = 3,   ///< exporter: the memory is being retired, or is freed
  request = 4,   ///< exporter: let the memory go
  answer = 5,    ///< importer: `release_message::state` says whether it has let the memory go
};

/// An importer's answer about memory.
enum class release_state : std::uint8_t {
  silent = 0,   ///< nothing yet; in messages other than answers
  gone = 1,     ///< the importer has no mapping of it, and its caches never again return a lease on it
  leased = 2,   ///< a mapping is still open; `gone` follows when it is closed
  unknown = 3,  ///< the importer has never opened it, and will not
};

/// One message: 56 plain bytes, in the byte order of the host.
struct release_message {
  std::uint64_t magic = 0;                      ///< kind and version
  std::uint64_t exporter = 0;                   ///< as in the handle
  std::uint64_t serial = 0;                     ///< as in the handle
  std::uint64_t retirement = 0;                 ///< number of the retirement; 0 in messages that belong to none
  std::uint64_t tag = 0;                        ///< of an `opening`, repeated in what the exporter says to it
  std::uint32_t milliseconds = 0;               ///< of a `request`: how long the exporter waits
  release_kind kind = release_kind::opening;    ///< what the message is
  release_state state = release_state::silent;  ///< of an `answer`; of a `refused`, `unknown`: for want of memory
  std::uint16_t reserved = 0;                   ///< 0
  std::uint32_t reserved_too = 0;               ///< 0
  std::uint32_t check = 0;                      ///< checksum of all the above

  /// Returns the memory that the message is about.
  [[nodiscard]] release_id id() const noexcept { return {exporter, serial}; }
  friend bool operator==(const release_message&, const release_message&) noexcept = default;
};

/// Returns the message with magic and checksum filled in, ready to send.
[[nodiscard]] PINFOLD_EXPORT release_message sealed(release_message message) noexcept;

/// Returns the message in received bytes. Errors: `invalid_argument` (another length, version, or kind, or damaged).
[[nodiscard]] PINFOLD_EXPORT result<release_message> read_release_message(std::span<const std::byte> bytes) noexcept;

}  // namespace pinfold
