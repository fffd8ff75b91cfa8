// SPDX-License-Identifier: BSD-3-Clause
// The wire form of a token: little-endian, whatever the machine.
#include "fd_passing/checksum.hpp"

#include <pinfold/remote_key.hpp>

#include <algorithm>

namespace pinfold {

namespace {

constexpr std::array<std::byte, 4> letters{std::byte{'P'}, std::byte{'F'}, std::byte{'R'}, std::byte{'K'}};
constexpr std::size_t version_at = 4;
constexpr std::size_t address_at = 8;
constexpr std::size_t length_at = 16;
constexpr std::size_t key_at = 24;
constexpr std::size_t generation_at = 32;
constexpr std::size_t slot_at = 40;
constexpr std::size_t check_at = 44;
constexpr std::uint32_t version = 1;

template <class Number>
void put(remote_key_wire& wire, std::size_t at, Number value) noexcept {
  for (std::size_t i = 0; i < sizeof value; ++i) wire[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class Number>
Number get(std::span<const std::byte> wire, std::size_t at) noexcept {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<Number>(std::to_integer<Number>(wire[at + i]) << (8 * i));
  return value;
}

bool makes_sense(const remote_key_token& token) noexcept {
  return token.length > 0 && token.address + token.length > token.address && token.generation % 2 == 1;
}

}  // namespace

remote_key_wire encode(const remote_key_token& token) noexcept {
  remote_key_wire wire{};
  std::copy(letters.begin(), letters.end(), wire.begin());
  put(wire, version_at, version);
  put(wire, address_at, token.address);
  put(wire, length_at, token.length);
  put(wire, key_at, token.key);
  put(wire, generation_at, token.generation);
  put(wire, slot_at, token.slot);
  put(wire, check_at, fd_passing::crc32c(std::span(wire).first(check_at)));
  return wire;
}

result<remote_key_token> decode_remote_key(std::span<const std::byte> wire) noexcept {
  if (wire.size() < address_at || !std::equal(letters.begin(), letters.end(), wire.begin()))
    return fail(errc::invalid_handle, "these bytes are no remote key");
  if (get<std::uint32_t>(wire, version_at) > version)
    return fail(errc::unsupported, "the remote key is of a later version of pinfold");
  if (wire.size() != remote_key_wire_bytes || get<std::uint32_t>(wire, version_at) != version ||
      get<std::uint32_t>(wire, check_at) != fd_passing::crc32c(wire.first(check_at)))
    return fail(errc::invalid_handle, "the remote key is damaged");
  const remote_key_token token{.address = get<std::uint64_t>(wire, address_at),
                               .length = get<std::uint64_t>(wire, length_at),
                               .key = get<std::uint64_t>(wire, key_at),
                               .generation = get<std::uint64_t>(wire, generation_at),
                               .slot = get<std::uint32_t>(wire, slot_at)};
  if (!makes_sense(token)) return fail(errc::invalid_handle, "the remote key has an impossible range or generation");
  return token;
}

}  // namespace pinfold
