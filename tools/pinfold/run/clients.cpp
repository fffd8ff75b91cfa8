// SPDX-License-Identifier: BSD-3-Clause
#include "run/clients.hpp"

#include "cli/failure.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <system_error>

namespace tool {
namespace {

namespace fs = std::filesystem;
constexpr auto first = client_variable::first;
constexpr auto second = client_variable::second;

struct client {
  std::string_view name;
  std::string_view file;                    // the adapter
  std::array<std::string_view, 2> folders;  // where it is installed, below that of libraries
  std::vector<client_variable> (*variables)(const fs::path& adapter);
};

std::vector<client_variable> preload(const fs::path& adapter) { return {{"LD_PRELOAD", adapter, "", ':', first}}; }

// mpirun hands these on to all hosts. On one where the component cannot be loaded, Open MPI would end a job that names
// it in OMPI_MCA_rcache, and would not look into the folders after one that is absent. It ignores parameters of
// components that it does not have.
std::vector<client_variable> component(const fs::path& adapter) {
  return {{"OMPI_MCA_mca_base_component_path", adapter.parent_path(), "SYSTEM_DEFAULT:USER_DEFAULT", ':', second},
          {"OMPI_MCA_rcache_pinfold_replace", "true", "", 0, first},
          {"OMPI_MCA_rcache", "", "", 0, first}};
}

std::vector<client_variable> hook_provider(const fs::path& adapter) {
  return {{"FI_PROVIDER_PATH", adapter.parent_path(), "", ':', first}, {"FI_HOOK", "pinfold", "", ';', first}};
}

// Open MPI's own folder is that of Debian's package.
constexpr std::array<client, 5> clients{{
    {"openmpi", "mca_rcache_pinfold.so", {"pinfold/openmpi", "openmpi/lib/openmpi3"}, component},
    {"ucx", "libpinfold-ucx.so", {"pinfold", "."}, preload},
    {"libfabric", "libpinfold-fi.so", {"libfabric", "pinfold"}, hook_provider},
    {"verbs", "libpinfold-verbs-preload.so", {"pinfold", "."}, preload},
    {"cuda", "libpinfold-cuda.so", {"pinfold", "."}, preload},
}};

const client& client_named(std::string_view name) {
  const auto* const found = std::ranges::find(clients, name, &client::name);
  if (found == clients.end()) throw usage_failure(fmt::format("no such client: {}", name));
  return *found;
}

// Where the adapter may be: in the build, or installed.
std::vector<fs::path> places_of(const client& one, const fs::path& tool_folder) {
  std::vector<fs::path> places{tool_folder / ".." / "adapters" / one.name};
  for (const auto folder : one.folders) places.push_back(tool_folder / PINFOLD_LIBRARIES / folder);
  return places;
}

}  // namespace

std::vector<std::string> client_names() {
  std::vector<std::string> names;
  for (const auto& one : clients) names.emplace_back(one.name);
  return names;
}

fs::path adapter_for(const std::string& name, const fs::path& tool_folder) {
  const auto& one = client_named(name);
  std::string looked_at;
  for (const auto& place : places_of(one, tool_folder)) {
    std::error_code missing;
    const auto found = fs::canonical(place / one.file, missing);
    if (!missing) return found;
    looked_at += fmt::format("\n  {}", place.lexically_normal().string());
  }
  throw failure(fmt::format("the adapter for {} is not installed, or not in this build: {} is in none of{}", one.name,
                            one.file, looked_at));
}

std::vector<client_variable> variables_for(const std::string& name, const fs::path& adapter) {
  return client_named(name).variables(adapter);
}

std::string why_not_nameable(const std::string& name, const fs::path& adapter) {
  for (const auto& one : variables_for(name, adapter)) {
    const auto* const separators = one.name == "LD_PRELOAD" ? ": " : ":";  // as ld.so(8) splits it
    if (one.separator == ':' && one.value.find_first_of(separators) != std::string::npos)
      return fmt::format("{} is split at a character in {}", one.name, one.value);
  }
  return {};
}

}  // namespace tool
