// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/verbs/memlock.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <fcntl.h>
#include <linux/capability.h>
#include <optional>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

namespace pinfold::verbs {

namespace {

std::string_view read_status(std::array<char, 8192>& into) noexcept {
  const int file = ::open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t bytes = ::read(file, into.data(), into.size());
  ::close(file);
  return {into.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name, int base) noexcept {
  const auto at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  text.remove_prefix(text.find_first_not_of(" \t") == std::string_view::npos ? 0 : text.find_first_not_of(" \t"));
  std::uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace

bool exceeds_memlock(std::size_t bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  std::array<char, 8192> room{};
  const auto text = read_status(room);
  const auto pinned = number_after(text, "\nVmPin:", 10);
  const auto capabilities = number_after(text, "\nCapEff:", 16);
  if (!pinned || !capabilities || ((*capabilities >> CAP_IPC_LOCK) & 1U) != 0) return false;
  const std::uint64_t before = *pinned * 1024;
  return before > limit.rlim_cur || bytes > limit.rlim_cur - before;
}

}  // namespace pinfold::verbs
