// SPDX-License-Identifier: BSD-3-Clause
#include "info/cuda.hpp"

#include "cli/sizes.hpp"

#include <pinfold/cuda.hpp>

#include <cstddef>
#include <fmt/format.h>

namespace tool {
namespace {

std::string uuid_text(const pinfold::cuda_device_info& device) {
  std::string text;
  for (const auto byte : device.uuid) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

json facts_of(const pinfold::cuda_device_info& device) {
  return {{"ordinal", device.ordinal},           {"name", device.name},
          {"uuid", uuid_text(device)},           {"memory", device.total_bytes},
          {"shares_allocations", true},          {"shares_segments", device.shares_segments},
          {"shares_pools", device.shares_pools}, {"registers_host_memory", device.registers_host_memory}};
}

std::string shared_by(const json& device) {
  std::string list = "allocations";
  if (device.at("shares_segments").get<bool>()) list += ", mapped segments";
  if (device.at("shares_pools").get<bool>()) list += ", pools";
  return list;
}

std::string abilities_of(const json& device) {
  return fmt::format("{}, {}; shares {}; {} host memory", device.at("name").get<std::string>(),
                     size_text(device.at("memory").get<std::size_t>()), shared_by(device),
                     device.at("registers_host_memory").get<bool>() ? "registers" : "does not register");
}

constexpr auto late_text =
    "a handle of freed memory is found out by asking its exporter; the driver's raw handles (over the adapter) name no "
    "exporter, and open what lies there now";

std::string driver_of(const json& facts) {
  return facts.at("driver").get<std::string>() + (facts.at("emulated").get<bool>() ? " (emulated)" : "");
}

}  // namespace

json cuda_facts() {
  const auto devices = pinfold::cuda_devices();
  auto list = json::array();
  bool emulated = false;
  for (const auto& device : devices.value_or(std::vector<pinfold::cuda_device_info>{})) {
    list.push_back(facts_of(device));
    emulated = emulated || device.name.find("emulated") != std::string::npos;
  }
  auto driver = pinfold::cuda_driver_text();
  return {{"driver", driver}, {"works", !list.empty()},   {"emulated", emulated},
          {"devices", list},  {"confirms_handles", true}, {"confirms_raw_handles", false}};
}

void print_cuda(const json& facts) {
  fmt::print("\nCUDA\n{}", paragraph("  driver      ", driver_of(facts)));
  for (const auto& device : facts.at("devices"))
    fmt::print("{}", paragraph(fmt::format("  device {:<3}  ", device.at("ordinal").get<int>()), abilities_of(device)));
  if (facts.at("works").get<bool>()) fmt::print("{}", paragraph("  late        ", late_text));
}

std::string cuda_line(const json& facts, std::size_t device) {
  const auto& one = facts.at("devices").at(device);
  return fmt::format("{}, {}, {}", driver_of(facts), one.at("name").get<std::string>(),
                     size_text(one.at("memory").get<std::size_t>()));
}

}  // namespace tool
