// SPDX-License-Identifier: BSD-3-Clause
#include "os/own_user.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

namespace {

constexpr uid_t most_overflow = 65535;  // the kernel allows no larger number

/// Returns as much of the file as fits; nothing if it cannot be read. Calls the kernel directly: libc's functions are
/// cancellation points.
std::string_view beginning_of(const char* path, std::span<char> room) noexcept {
  const auto from = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (from < 0) return {};
  const auto got = ::syscall(SYS_read, from, room.data(), room.size());
  ::syscall(SYS_close, from);
  return {room.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

/// Removes the next number from the text. Returns false if there is none.
bool take_number(std::string_view& text, std::uint64_t& into) noexcept {
  const auto from = text.find_first_not_of(" \n");
  if (from == std::string_view::npos) return false;
  text.remove_prefix(from);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), into);
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
  return parsed.ec == std::errc{};
}

uid_t overflow_user() noexcept {
  constexpr uid_t by_default = 65534;
  std::array<char, 32> room{};
  auto text = beginning_of("/proc/sys/kernel/overflowuid", room);
  std::uint64_t number = 0;
  return take_number(text, number) ? static_cast<uid_t>(number) : by_default;
}

/// Returns whether the process's user namespace has every user of the system. A namespace can only map users that the
/// outer one has, so counting them is enough.
bool has_every_user() noexcept {
  constexpr std::uint64_t users = 0xffff'ffff;
  std::array<char, 1024> room{};
  auto text = beginning_of("/proc/self/uid_map", room);
  std::uint64_t mapped = 0;
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  while (take_number(text, inside) && take_number(text, outside) && take_number(text, count)) mapped += count;
  return mapped >= users;
}

}  // namespace

user_match match_user(uid_t reported) noexcept {
  if (reported != static_cast<uid_t>(::syscall(SYS_geteuid))) return user_match::other;
  if (reported > most_overflow || reported != overflow_user() || has_every_user()) return user_match::own;
  return user_match::ambiguous;
}

// Only the owner may change the permissions: a capability for files of other users does not reach users that the
// namespace does not have.
bool is_own_file(int descriptor, const struct stat& seen) noexcept {
  constexpr mode_t permissions = 07777;
  const auto match = match_user(seen.st_uid);
  return match == user_match::own ||
         (match == user_match::ambiguous && ::syscall(SYS_fchmod, descriptor, seen.st_mode & permissions) == 0);
}

}  // namespace pinfold::os
