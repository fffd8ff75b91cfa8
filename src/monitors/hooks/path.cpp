// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/path.hpp"

#include "monitors/hooks/plain.hpp"
#include "os/check.hpp"

#include <cstring>

namespace pinfold::monitors {

namespace {

constexpr std::array<std::uint8_t, 16> mark{'p', 'i', 'n', 'f', 'o', 'l', 'd', ' ', 's', 't', 'u', 'b', ' ', '1', 0, 0};
constexpr std::size_t mark_size = mark.size() + sizeof(std::uintptr_t);

const std::uint8_t* bytes_at(std::uintptr_t at) noexcept { return reinterpret_cast<const std::uint8_t*>(at); }

// Returns whether a mark precedes the stub. A mark never crosses a page boundary, so this never reads a page that may
// be unmapped.
bool is_marked(std::uintptr_t stub) noexcept {
  constexpr std::uintptr_t page = 4096;
  return stub % page >= mark_size && std::memcmp(bytes_at(stub - mark_size), mark.data(), mark.size()) == 0;
}

std::uintptr_t replaced_for(std::uintptr_t marked_stub) noexcept {
  PINFOLD_ASSERT(is_marked(marked_stub), "only a mark has the address that was replaced");
  std::uintptr_t at = 0;
  std::memcpy(&at, bytes_at(marked_stub - sizeof at), sizeof at);
  return at;
}

PINFOLD_PLAIN std::uint64_t held_by(const std::uint64_t* at) noexcept { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

// Adds all words of a jump, possibly behind ENDBR64; another library's jump may span two words.
bool add(guard::words& to, std::size_t& count, std::uintptr_t jump) noexcept {
  constexpr std::uintptr_t word = sizeof(std::uint64_t), endbr64 = 4;
  for (auto at = jump & ~(word - 1); at < jump + endbr64 + x86_64::jump_size; at += word) {
    if (count == guard::words::most) return false;
    to.at[count] = reinterpret_cast<const std::uint64_t*>(at);
    to.expected[count] = held_by(to.at[count]);
    ++count;
  }
  return true;
}

std::optional<guard::words> follow(std::uintptr_t entry, is_stub_of_ours ours) noexcept {
  constexpr int longest = 16;
  guard::words path;
  std::size_t count = 0;
  bool in_marked = false;  // pages of the library that made the mark never change
  auto at = entry;
  for (int jumps = 0; jumps < longest && at != 0; ++jumps) {
    if (ours(at)) return path;
    if (is_marked(at)) {
      in_marked = true;
      at += x86_64::far_jump_size;
    } else if (!in_marked && !add(path, count, at)) {
      return std::nullopt;
    }
    const auto next = x86_64::jump_target(bytes_at(at), at);
    in_marked = false;
    at = next;
  }
  return std::nullopt;
}

}  // namespace

x86_64::code stub_mark(std::uintptr_t replaced) noexcept {
  x86_64::code made;
  std::memcpy(made.bytes.data(), mark.data(), mark.size());
  std::memcpy(made.bytes.data() + mark.size(), &replaced, sizeof replaced);
  made.size = mark_size;
  return made;
}

bool left_over(std::uintptr_t jump, std::uintptr_t at) noexcept {
  const auto stub = x86_64::jump_target(bytes_at(jump), jump);
  return stub != 0 && is_marked(stub) && replaced_for(stub) == at && x86_64::jump_target(bytes_at(at), at) != jump;
}

// Follows the path twice: the code may have changed between reading it and noting it.
std::optional<guard::words> path_to_us(std::uintptr_t entry, is_stub_of_ours ours) noexcept {
  PINFOLD_ASSERT(entry != 0 && ours != nullptr, "a path begins at a function");
  const auto first = follow(entry, ours);
  const auto second = first ? follow(entry, ours) : std::nullopt;
  return second && first->at == second->at && first->expected == second->expected ? second : std::nullopt;
}

}  // namespace pinfold::monitors
