// SPDX-License-Identifier: BSD-3-Clause
#include "perf/speed/columns.hpp"

#include <cstdint>
#include <fmt/format.h>

namespace tool {
namespace {

using columns = std::vector<column>;

columns named(columns more) {
  columns all{number("#regions", "regions", 1, 0), words("pattern", "pattern"), words("subject", "subject")};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Shows how many windows remained after removing those in which a thread was off its CPU.
column kept() {
  return {"kept", [](const json& row) {
            if (!row.contains("windows")) return std::string("-");
            const auto all = row.at("windows").get<double>();
            return fmt::format("{:.0f}%", all == 0 ? 0 : 100 * row.at("undisturbed").get<double>() / all);
          }};
}

columns ended(columns all) {
  all.push_back(number("x pinfold", "ratio", 1, 2));
  all.push_back(kept());
  all.push_back(number("errors", "errors", 1, 0));
  return all;
}

}  // namespace

columns hit_columns() { return ended(named({number("ns/op", "ns_per_op", 1, 1)})); }

columns scale_columns() {
  return ended(named({number("threads", "threads", 1, 0), number("ns/op", "ns_per_op", 1, 1),
                      number("acquire[ns]", "ns_acquire", 1, 1), number("release[ns]", "ns_release", 1, 1),
                      number("slowest[ns]", "ns_slowest", 1, 1), number("Mop/s", "mops", 1, 1),
                      number("x 1 thread", "gain", 1, 2)}));
}

columns miss_columns() {
  return ended(named({number("threads", "threads", 1, 0), words("meanwhile", "meanwhile"),
                      number("ns/op", "ns_per_op", 1, 1), number("x 1 thread", "gain", 1, 2),
                      number("total[s]", "seconds", 1, 3), number("p50[us]", "p50_ns", 1e-3, 3),
                      number("p99[us]", "p99_ns", 1e-3, 3), number("longest[us]", "longest_ns", 1e-3, 1)}));
}

columns memory_columns() {
  return named({words("layout", "layout"), number("#cached", "cached", 1, 0),
                number("bytes/region", "bytes_per_region", 1, 1), number("x pinfold", "ratio", 1, 2),
                number("errors", "errors", 1, 0)});
}

columns evict_columns() {
  return ended(
      named({number("threads", "threads", 1, 0), number("ns/op", "ns_per_op", 1, 1), number("Mop/s", "mops", 1, 1),
             number("x 1 thread", "gain", 1, 2), number("hit rate", "hit_rate", 1, 3)}));
}

}  // namespace tool
