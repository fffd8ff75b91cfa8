// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/host.hpp"

#include "fd_passing/checksum.hpp"
#include "os/file.hpp"

#include <array>
#include <atomic>
#include <fcntl.h>
#include <span>

namespace pinfold::fd_passing {

namespace {

constexpr std::size_t boot_id_bytes = 36;
constexpr std::uint32_t sixteen_bits = 0xffff;

std::uint32_t read_host() noexcept {
  const os::file source(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, boot_id_bytes> text{};
  if (!source || ::read(source.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return 0;
  return host_number({text.data(), text.size()});
}

}  // namespace

std::uint32_t host_number(std::string_view boot_id) noexcept {
  const auto sum = crc32c(std::as_bytes(std::span(boot_id)));
  const auto folded = (sum ^ (sum >> 16U)) & sixteen_bits;  // a memfd handle has room for 16 bits
  return folded == 0 ? 1 : folded;
}

std::uint32_t this_host() noexcept {
  constexpr std::uint32_t unread = UINT32_MAX;
  static std::atomic<std::uint32_t> known{unread};
  auto host = known.load(std::memory_order_relaxed);
  if (host == unread) {
    host = read_host();
    known.store(host, std::memory_order_relaxed);
  }
  return host;
}

bool may_be_this_host(std::uint32_t host) noexcept {
  const auto here = this_host();
  return host == 0 || here == 0 || host == here;
}

}  // namespace pinfold::fd_passing
