// SPDX-License-Identifier: BSD-3-Clause
#include "info/clients.hpp"

#include "cli/child_program.hpp"
#include "cli/failure.hpp"
#include "run/clients.hpp"
#include "run/loadable.hpp"

#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace tool {
namespace {

std::string_view value_of(const char* variable) {
  const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): there is one thread
  return value != nullptr ? value : "";
}

// Returns empty for a client that has no cache of its own, or whose cache is off in this environment. That of libfabric
// is in its own part of the report, by provider.
std::string own_cache_of(const std::string& client) {
  if (client == "openmpi" && value_of("OMPI_MCA_rcache") != "pinfold" &&
      value_of("OMPI_MCA_rcache_pinfold_replace") != "true")
    return "grdma; OMPI_MCA_rcache_pinfold_replace=true replaces it";
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
    auto why_not = why_not_nameable(client, adapter);
    row["why_not"] = why_not.empty() ? why_not_usable(client, adapter) : why_not;
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

}  // namespace tool
