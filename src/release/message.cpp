// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/release/message.hpp>

#include "fd_passing/checksum.hpp"

#include <cstring>

namespace pinfold {

namespace {

/// The letters PFRELSE and the version of the protocol.
constexpr std::uint64_t release_magic = 0x5046'5245'4c53'4501;

static_assert(sizeof(release_message) == 56);

}  // namespace

release_message sealed(release_message message) noexcept { return fd_passing::completed(message, release_magic); }

result<release_message> read_release_message(std::span<const std::byte> bytes) noexcept {
  release_message read;
  if (bytes.size() != sizeof read) return fail(errc::invalid_argument, "not a release message: its length is wrong");
  std::memcpy(&read, bytes.data(), sizeof read);
  if (read.magic != release_magic) return fail(errc::invalid_argument, "not a release message of this version");
  if (read.check != fd_passing::checksum_of(read))
    return fail(errc::invalid_argument, "the release message is damaged");
  if (read.kind < release_kind::opening || read.kind > release_kind::answer || read.state > release_state::unknown)
    return fail(errc::invalid_argument, "the release message has impossible contents");
  return read;
}

}  // namespace pinfold
