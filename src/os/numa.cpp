// SPDX-License-Identifier: BSD-3-Clause
#include "os/numa.hpp"

#include "os/page_bytes.hpp"

#include <array>
#include <charconv>
#include <fstream>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

namespace {

constexpr std::size_t most_nodes = 1024;

static_assert(sizeof(cpu_numbers) == most_cpus / 8);  // the layout of the kernel's masks

std::optional<std::size_t> take_number(std::string_view& text) noexcept {
  std::size_t number = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || number >= most_cpus) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

bool take(std::string_view& text, char wanted) noexcept {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<cpu_numbers> read_list(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  if (!std::getline(file, line)) return std::nullopt;
  return parse_cpus(line);
}

std::optional<std::size_t> node_of_page(std::uintptr_t address) noexcept {
  auto* page = reinterpret_cast<void*>(address - address % page_bytes());
  int status = -1;  // a node, or a negative errno if there is no page
  if (::syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &status, 0) != 0 || status < 0) return std::nullopt;
  return static_cast<std::size_t>(status);
}

// Not with MPOL_F_NODE, which would make the page present.
std::optional<std::size_t> node_of_policy(std::uintptr_t address) noexcept {
  int mode = MPOL_DEFAULT;
  std::array<unsigned long, most_nodes / (8 * sizeof(unsigned long))> nodes{};
  if (::syscall(SYS_get_mempolicy, &mode, nodes.data(), most_nodes, address, MPOL_F_ADDR) != 0) return std::nullopt;
  if (mode != MPOL_BIND && mode != MPOL_PREFERRED) return std::nullopt;
  for (std::size_t node = 0; node < most_nodes; ++node)
    if ((nodes[node / (8 * sizeof(unsigned long))] >> node % (8 * sizeof(unsigned long)) & 1U) != 0) return node;
  return std::nullopt;
}

cpu_numbers cpus_of_thread() noexcept {
  cpu_numbers cpus;
  if (::syscall(SYS_sched_getaffinity, 0, sizeof cpus, &cpus) < 0) cpus.reset();
  return cpus;
}

}  // namespace

std::optional<cpu_numbers> parse_cpus(std::string_view list) {
  cpu_numbers cpus;
  while (!list.empty()) {
    const auto first = take_number(list);
    const auto last = first && take(list, '-') ? take_number(list) : first;
    if (!first || !last || *last < *first) return std::nullopt;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.set(cpu);
    if (!list.empty() && (!take(list, ',') || list.empty())) return std::nullopt;
  }
  return cpus;
}

numa_nodes::numa_nodes(const std::string& folder) {
  const auto online = read_list(folder + "/online");
  if (!online || online->count() < 2) return;
  for (std::size_t node = 0; node < most_nodes; ++node) {
    if (!online->test(node)) continue;
    cpus_.resize(node + 1);
    cpus_[node] = read_list(folder + "/node" + std::to_string(node) + "/cpulist").value_or(cpu_numbers{});
    with_cpus_ += cpus_[node].any() ? 1 : 0;
  }
}

std::optional<std::size_t> node_of(const range& memory) noexcept {
  for (const auto address : {memory.begin, memory.begin + memory.size() / 2, memory.end - 1})
    if (const auto node = node_of_page(address)) return node;
  return node_of_policy(memory.begin);
}

near_memory::near_memory(const numa_nodes& nodes) noexcept : nodes_(&nodes) {
  if (nodes.several()) allowed_ = now_ = cpus_of_thread();
}

void near_memory::move_to(const range& memory) noexcept {
  if (allowed_.any()) move_to_node(node_of(memory));
}

void near_memory::move_to_node(std::optional<std::size_t> node) noexcept {
  if (allowed_.none()) return;
  auto wanted = node ? nodes_->cpus_of(*node) & allowed_ : allowed_;
  if (wanted.none()) wanted = allowed_;
  if (wanted != now_ && ::syscall(SYS_sched_setaffinity, 0, sizeof wanted, &wanted) == 0) now_ = wanted;
}

}  // namespace pinfold::os
