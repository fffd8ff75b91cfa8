// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/address.hpp"

#include "cli/failure.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <span>
#include <sys/stat.h>
#include <system_error>

namespace tool {
namespace {

struct network {
  int family = 0;  ///< 0: not an address
  std::array<unsigned char, 16> bytes{};
  unsigned bits = 0;
};

// An address is a network of one host.
network network_of(const std::string& text) {
  network read;
  const auto slash = text.find('/');
  const auto address = text.substr(0, slash);
  if (::inet_pton(AF_INET, address.c_str(), read.bytes.data()) == 1) read.family = AF_INET;
  if (::inet_pton(AF_INET6, address.c_str(), read.bytes.data()) == 1) read.family = AF_INET6;
  const unsigned whole = read.family == AF_INET ? 32 : 128;
  read.bits = whole;
  if (slash == std::string::npos) return read;
  const auto* end = text.data() + text.size();
  const auto [stopped, problem] = std::from_chars(text.data() + slash + 1, end, read.bits);
  if (problem != std::errc{} || stopped != end || read.bits > whole) read.family = 0;
  return read;
}

std::span<const unsigned char> bytes_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    return {reinterpret_cast<const unsigned char*>(&four), sizeof four};
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return {reinterpret_cast<const unsigned char*>(&six), sizeof six};
}

bool inside(const network& wanted, const sockaddr& address) {
  if (address.sa_family != wanted.family) return false;
  const auto bytes = bytes_of(address);
  for (unsigned bit = 0; bit < wanted.bits; ++bit) {
    const unsigned mask = 0x80U >> (bit % 8);
    if (((bytes[bit / 8] ^ wanted.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

std::string text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(address.sa_family, bytes_of(address).data(), text.data(), text.size());
}

}  // namespace

std::string own_address(const std::string& wanted) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    throw failure(fmt::format("cannot list this host's addresses: {}", std::generic_category().message(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  const auto where = network_of(wanted);
  std::string others;
  for (const auto* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
      continue;
    const auto text = text_of(*one->ifa_addr);
    if (wanted == one->ifa_name || inside(where, *one->ifa_addr)) return text;
    others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", text, one->ifa_name);
  }
  throw usage_failure(fmt::format("--address {}: not an address, network or interface of this host, which has: {}",
                                  wanted, others.empty() ? "none" : others));
}

std::string this_network() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat own{};
  ::stat("/proc/self/ns/net", &own);
  return fmt::format("{} {}", boot, own.st_ino);
}

}  // namespace tool
