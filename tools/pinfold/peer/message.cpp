// SPDX-License-Identifier: BSD-3-Clause
#include "peer/message.hpp"

#include <algorithm>
#include <cstring>

namespace tool {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;

// The finaliser of splitmix64: similar values get unrelated results.
std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

std::uint64_t seed_for(std::uint64_t peer, std::uint64_t buffer, std::uint64_t generation) noexcept {
  return mix(mix(mix(peer + odd) + buffer) + generation);
}

std::uint64_t word_at(std::uint64_t seed, std::size_t position) noexcept {
  return seed + (position / word_bytes + 1) * odd;
}

void fill(std::span<std::byte> bytes, std::uint64_t seed, std::size_t position) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += word_bytes) {
    const auto word = word_at(seed, position + at);
    std::memcpy(bytes.data() + at, &word, std::min(word_bytes, bytes.size() - at));
  }
}

bool holds(std::span<const std::byte> bytes, std::uint64_t seed, std::size_t position) noexcept {
  const auto whole = bytes.size() / word_bytes * word_bytes;
  std::uint64_t difference = 0;
  for (std::size_t at = 0; at < whole; at += word_bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, word_bytes);
    difference |= word ^ word_at(seed, position + at);
  }
  const auto last = word_at(seed, position + whole);
  return difference == 0 && std::memcmp(bytes.data() + whole, &last, bytes.size() - whole) == 0;
}

}  // namespace tool
