// SPDX-License-Identifier: BSD-3-Clause
#include "info/clients.hpp"

#include "cli/child_program.hpp"
#include "cli/failure.hpp"
#include "run/clients.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <fmt/format.h>
#include <span>
#include <string>
#include <string_view>

namespace tool {
namespace {

constexpr std::string_view load_word = "--loadable";  // the tool's own argument for its child
constexpr std::chrono::seconds longest{20};

// In a process of its own: the client's libraries, which the adapter needs, patch the process when they are loaded.
std::string why_not_loadable(const std::string& file) {
  const auto seen = run_program("/proc/self/exe", {std::string(load_word), file}, longest);
  return seen.status == 0 ? seen.output : "the program that loads the adapter " + ending_of(seen.status);
}

std::string_view value_of(const char* variable) {
  const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): there is one thread
  return value != nullptr ? value : "";
}

// Returns empty for a client that has no cache of its own, or whose cache is off in this environment. That of libfabric
// is in its own part of the report, by provider.
std::string own_cache_of(const std::string& client) {
  if (client == "openmpi" && value_of("OMPI_MCA_rcache") != "pinfold")
    return "grdma; OMPI_MCA_rcache=pinfold replaces it";
  const auto ucx = value_of("UCX_RCACHE_ENABLE");  // its words for no
  if (client == "ucx" && ucx != "n" && ucx != "no" && ucx != "off" && ucx != "0")
    return "ucs_rcache; UCX_RCACHE_ENABLE=n turns it off";
  return {};
}

json facts_of(const std::string& client) {
  json row{{"name", client}, {"adapter", ""}, {"works", false}, {"why_not", ""}, {"own_cache", own_cache_of(client)}};
  try {
    const auto adapter = adapter_for(client, tool_path().parent_path()).string();
    row["adapter"] = adapter;
    row["why_not"] = why_not_loadable(adapter);
    row["works"] = row.at("why_not").get<std::string>().empty();
  } catch (const std::exception& missing) {
    const std::string_view why = missing.what();
    row["why_not"] = why.substr(0, why.find(':'));  // without the list of places
  }
  return row;
}

}  // namespace

json client_facts() {
  json rows = json::array();
  for (const auto& client : client_names()) rows.push_back(facts_of(client));
  return rows;
}

void print_clients(const json& rows) {
  fmt::print("\nClients (pinfold run --for NAME -- PROGRAM)\n");
  for (const auto& row : rows) {
    const auto why_not = row.at("why_not").get<std::string>();
    const auto own = row.at("own_cache").get<std::string>();
    std::string text = why_not.empty() ? "works" : "does not work: " + why_not;
    if (why_not.empty() && !own.empty())
      text += fmt::format(". A program that uses pinfold beside it has two caches: {}", own);
    fmt::print("{}", paragraph(fmt::format("  {:<12}", row.at("name").get<std::string>()), text));
  }
}

void answer_whether_loadable(int argc, char** argv) {
  const std::span given(argv, static_cast<std::size_t>(argc));
  if (given.size() != 3 || given[1] != load_word) return;
  end_with_parent();
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread asks the loader
  const char* const refused = ::dlopen(given[2], RTLD_NOW | RTLD_LOCAL) == nullptr ? ::dlerror() : "";
  const bool written = std::fputs(refused, stdout) >= 0 && std::fflush(stdout) == 0;
  std::_Exit(written ? 0 : 1);  // skips the destructors of the loaded libraries
}

}  // namespace tool
