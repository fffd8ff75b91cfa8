// SPDX-License-Identifier: BSD-3-Clause
#include "info/parts.hpp"

#include "cli/child_program.hpp"
#include "cli/failure.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/drivers/facts.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tool {
namespace {

constexpr std::string_view facts_word = "--driver-facts";  // the tool's own argument for its child
constexpr std::chrono::seconds longest_facts{60};

json missing(std::string why) { return {{"works", false}, {"why_not", std::move(why)}}; }

// Returns the module's path beside the tool, where the build and the installation put it.
std::filesystem::path module_of(const char* driver) {
  return tool_path().parent_path() / PINFOLD_DRIVERS / fmt::format("pinfold-{}-facts.so", driver);
}

json facts_from_module(const char* driver) try {
  const auto module = module_of(driver);
  if (!std::filesystem::exists(module)) return missing("this pinfold was built without this driver");
  void* const loaded = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread asks the loader
  if (loaded == nullptr) return missing(::dlerror());
  auto* const ask = reinterpret_cast<decltype(&::pinfold_driver_facts)>(::dlsym(loaded, "pinfold_driver_facts"));
  return ask == nullptr ? missing("the driver's module is damaged") : json::parse(ask());
} catch (const std::exception& failed) {
  return missing(failed.what());
}

// Runs in a process of its own: a provider's libraries install signal handlers when they are loaded (libinfinipath's
// handler of SIGINT calls exit(), which can wait for ever for a lock that fi_getinfo holds), and may crash.
json facts_from(const char* driver) try {
  if (!std::filesystem::exists(module_of(driver))) return missing("this pinfold was built without this driver");
  const auto seen = run_program("/proc/self/exe", {std::string(facts_word), driver}, longest_facts);
  if (seen.status != 0) return missing("the program that queries the driver " + ending_of(seen.status));
  return json::parse(seen.output);
} catch (const std::exception& failed) {
  return missing(failed.what());
}

std::string limits_of(const json& device) {
  const auto largest = device.at("largest").get<std::uint64_t>();
  return fmt::format("{} regions of at most {}", device.at("regions").get<std::uint32_t>(),
                     largest >> 62U != 0 ? "any size" : size_text(static_cast<std::size_t>(largest)));
}

std::string paging_of(const json& device) {
  if (!device.at("on_demand_paging").get<bool>()) return "no on-demand paging";
  const bool implicit = device.at("implicit_on_demand_paging").get<bool>();
  return fmt::format("on-demand paging{}, off by default", implicit ? ", also implicit" : "");
}

std::string line_of(const json& device) {
  const auto name = device.at("name").get<std::string>();
  const auto why_not = device.at("why_not").get<std::string>();
  if (!why_not.empty()) return fmt::format("{}: {}", name, why_not);
  return fmt::format("{}: {}; {}atomics; {}; {}dma-bufs", name, limits_of(device),
                     device.at("atomics").get<bool>() ? "" : "no ", paging_of(device),
                     device.at("dma_bufs").get<bool>() ? "" : "no ");
}

std::string names(const json& providers, const char* only = nullptr) {
  std::string list;
  for (const auto& one : providers)
    if (only == nullptr || one.at(only).get<bool>())
      list += (list.empty() ? "" : ", ") + one.at("name").get<std::string>();
  return list;
}

std::string cache_of(const json& libfabric) {
  if (!libfabric.at("caches_too").get<bool>())
    return "libfabric's own registration cache is off, or does not serve these providers";
  return fmt::format(
      "two caches: libfabric may also keep registrations of {}, and pinfold refuses these providers. "
      "FI_MR_CACHE_MAX_COUNT=0 (efa: FI_EFA_MR_CACHE_ENABLE=0) or turn_off_libfabric_cache() turns libfabric's cache "
      "off",
      names(libfabric.at("providers"), "caches_too"));
}

void say(std::string_view head, const std::string& text) {
  fmt::print("{}", paragraph(fmt::format("  {:<12}", head), text));
}

}  // namespace

void answer_driver_facts(int argc, char** argv) {
  const std::span given(argv, static_cast<std::size_t>(argc));
  if (given.size() != 3 || given[1] != facts_word) return;
  end_with_parent();
  const auto facts = facts_from_module(given[2]).dump();
  const bool written = std::fputs(facts.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  std::_Exit(written ? 0 : 1);  // skips the destructors of the loaded libraries
}

json rdma_facts() { return {{"verbs", facts_from("verbs")}, {"libfabric", facts_from("libfabric")}}; }

void print_rdma(const json& facts) {
  const auto& verbs = facts.at("verbs");
  const auto& libfabric = facts.at("libfabric");
  fmt::print("\nRDMA\n");
  for (const auto& device : verbs.value("devices", json::array())) say("verbs", line_of(device));
  if (verbs.value("devices", json::array()).empty()) say("verbs", verbs.at("why_not").get<std::string>());
  if (!libfabric.at("works").get<bool>()) return say("libfabric", libfabric.at("why_not").get<std::string>());
  say("libfabric", libfabric.at("version").get<std::string>() + ": " + names(libfabric.at("providers")));
  say("", cache_of(libfabric));
}

}  // namespace tool
