// SPDX-License-Identifier: BSD-3-Clause
#include "os/numa.hpp"
#include "os/no_cancellation.hpp"

#include <pinfold/numa.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace pinfold {

namespace {

constexpr std::uint32_t local_distance = 10;  // ACPI's, for a node to itself
constexpr std::uint32_t unreachable = 255;

struct text {
  std::array<char, 4096> room;
  std::size_t bytes;
  [[nodiscard]] std::string_view view() const noexcept { return {room.data(), bytes}; }
};

std::optional<text> read_text(const char* path) noexcept {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  text all{};
  const auto got = ::read(file, all.room.data(), all.room.size());
  ::close(file);
  if (got < 0) return std::nullopt;
  all.bytes = static_cast<std::size_t>(got);
  return all;
}

// Returns the number at position `which` in a space-separated list.
template <class Number>
std::optional<Number> number_in(std::string_view list, std::size_t which) noexcept {
  for (; !list.empty(); --which) {
    const auto begin = list.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    list.remove_prefix(begin);
    Number value{};
    const auto [end, problem] = std::from_chars(list.data(), list.data() + list.size(), value);
    if (problem != std::errc{}) break;
    if (which == 0) return value;
    list.remove_prefix(static_cast<std::size_t>(end - list.data()));
  }
  return std::nullopt;
}

// Returns the position of a node in the list of distances, which contains only online nodes.
std::optional<std::size_t> column_of(int node) noexcept {
  const auto says = read_text("/sys/devices/system/node/online");
  auto list = says ? says->view() : std::string_view{};
  while (!list.empty() && list.back() == '\n') list.remove_suffix(1);
  const auto online = os::parse_cpus(list);
  const auto number = static_cast<std::size_t>(node);
  if (!online || number >= os::most_cpus || !online->test(number)) return std::nullopt;
  std::size_t before = 0;
  for (std::size_t one = 0; one < number; ++one) before += online->test(one) ? 1 : 0;
  return before;
}

bool is_device_name(std::string_view name) noexcept {
  return !name.empty() && name.size() < 64 && name.find('/') == std::string_view::npos && name[0] != '.';
}

// Returns the path of a file of the device; null characters fill the rest.
std::array<char, 160> path_of(std::string_view device, std::string_view file) noexcept {
  std::array<char, 160> path{};
  char* end = path.data();
  for (const std::string_view part : {std::string_view("/sys/class/infiniband/"), device, file})
    end = std::copy(part.begin(), part.end(), end);
  return path;
}

}  // namespace

result<int> numa_node_of(const void* address) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* where = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) / page * page);
  int node = unknown_node;
  if (::syscall(SYS_move_pages, 0, 1UL, &where, nullptr, &node, 0) < 0) {
    const int native = errno;
    if (native == ENOSYS) return fail_errno(errc::unsupported, native, "the kernel knows no NUMA nodes");
    return fail_errno(errc::not_permitted, native, "the kernel does not tell the node of this memory");
  }
  if (node >= 0 || node == -ENOENT) return node >= 0 ? node : unknown_node;
  unsigned char present = 0;
  if (node == -EFAULT && ::mincore(where, page, &present) == 0) return unknown_node;  // a page that was only read
  return fail_errno(errc::invalid_range, -node, "there is no memory at the address");
}

result<int> numa_node_of_rdma(std::string_view device) noexcept {
  const detail::no_cancellation guard;
  if (!is_device_name(device)) return fail(errc::invalid_argument, "this is no name of a device");
  if (::access(path_of(device, "").data(), F_OK) != 0)
    return fail_errno(errc::unsupported, errno, "this host has no RDMA device with this name");
  // A software device has no file for a node, because it belongs to no bus.
  const auto says = read_text(path_of(device, "/device/numa_node").data());
  return says ? number_in<int>(says->view(), 0).value_or(unknown_node) : unknown_node;
}

std::uint32_t numa_distance(int from, int to) noexcept {
  const detail::no_cancellation guard;
  if (from < 0 || to < 0) return 0;
  std::array<char, 64> path{};
  static_cast<void>(std::snprintf(path.data(), path.size(), "/sys/devices/system/node/node%d/distance", from));
  const auto says = read_text(path.data());
  const auto column = column_of(to);
  const auto told = says && column ? number_in<std::uint32_t>(says->view(), *column) : std::nullopt;
  return told.value_or(from == to ? local_distance : unreachable);
}

member_distance distance_by_node(std::vector<int> nodes) {
  return [nodes = std::move(nodes)](std::size_t member, const range& memory) noexcept -> std::uint32_t {
    const auto here = numa_node_of(reinterpret_cast<const void*>(memory.begin));
    if (!here || member >= nodes.size()) return 0;
    return numa_distance(*here, nodes[member]);
  };
}

}  // namespace pinfold
