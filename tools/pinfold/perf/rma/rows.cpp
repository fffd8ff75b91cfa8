// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/rows.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"

#include <algorithm>

namespace tool {
namespace {

constexpr double megabyte = 1 << 20;

template <class Number, class Rows>
Number sum(const Rows& rows, const char* key) {
  Number total = 0;
  for (const auto& one : rows) total += one.at(key).template get<Number>();
  return total;
}

}  // namespace

void rma_tally::add(const rma_round& round, const rma_outcome& came, bool warm_up) {
  transfers += round.count;
  wrong += came.wrong;
  if (warm_up) return;
  timed += round.count;
  seconds += came.seconds;
  best = std::max(best, static_cast<double>(round.count) / came.seconds);
}

json as_json(const rma_tally& tally) {
  return {{"transfers", tally.transfers},
          {"wrong", tally.wrong},
          {"timed", tally.timed},
          {"rate", static_cast<double>(tally.timed) / tally.seconds},
          {"best", tally.best}};
}

json rma_row(const json& what, const std::vector<json>& tallies) {
  auto row = what;
  const auto bytes = row.at("size").get<double>();
  const auto rate = sum<double>(tallies, "rate") / static_cast<double>(tallies.size());
  double best = 0;
  for (const auto& one : tallies) best = std::max(best, one.at("best").get<double>());
  row["iterations"] = tallies.front().at("timed");
  row["peak_mb_per_s"] = rounded(best * bytes / megabyte);
  row["mb_per_s"] = rounded(rate * bytes / megabyte);
  row["transfers_per_s"] = rounded(rate);
  row["transfers"] = sum<std::size_t>(tallies, "transfers");
  row["errors"] = sum<std::size_t>(tallies, "wrong");
  row["verified"] = sum<std::size_t>(tallies, "transfers") - sum<std::size_t>(tallies, "wrong");
  return row;
}

void add_rma_gains(json& rows) {
  add_gains(rows, "transfers_per_s", figure_of::rate, [](const json& base, const json& row) {
    return base.at("subject") == "per-transfer" && same("size", base, row) && same("operation", base, row);
  });
}

std::vector<column> rma_columns() {
  return with_errors({count("#bytes", "size"), words("operation", "operation"), words("subject", "subject"),
                      count("#iterations", "iterations"), number("BW peak[MB/sec]", "peak_mb_per_s", 1, 2),
                      number("BW average[MB/sec]", "mb_per_s", 1, 2),
                      number("MsgRate[Mpps]", "transfers_per_s", 1e-6, 6), number("x per-transfer", "gain", 1, 2),
                      count("verified", "verified")});
}

std::string rma_summary(const json& rows) {
  return fmt::format("verified {} of {} transfers, every byte of each, where they arrived",
                     sum<std::size_t>(rows, "verified"), sum<std::size_t>(rows, "transfers"));
}

}  // namespace tool
