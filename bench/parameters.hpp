// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What to measure, the same for every subject. The tool sends it as JSON to the programs that measure peers.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bench {

using json = nlohmann::ordered_json;

struct parameters {
  std::string command;               ///< hit, miss, scale, memory, evict, batch or monitor
  std::vector<std::size_t> regions;  ///< numbers of cached regions
  std::vector<unsigned> threads;
  unsigned repeats = 9;          ///< measurements, of which the median counts
  double seconds = 0.05;         ///< length of each
  unsigned delay_ms = 50;        ///< of a registration, where many slow ones run in parallel
  unsigned pause_ms = 300;       ///< of a registration or deregistration, while hits are timed
  std::size_t hits = 100'000;    ///< that are timed one by one
  double time_limit = 120;       ///< seconds after which filling a cache is abandoned
  std::string only{};            ///< limits the cases about monitors to this one; empty: all
  std::size_t many = 1'000'000;  ///< regions that one munmap unmaps
  bool refill = false;           ///< misses in a cache that had all regions before

  /// PINFOLD_MONITOR of pinfold's caches. A peer's cache has its own monitor, so this is not sent.
  std::string monitors = "manual";

  /// Is called with each row as soon as it is complete. Not sent either.
  std::function<void(const json& row)> row_done{};

  /// Returns whether monitors watch the regions, which need memory then.
  [[nodiscard]] bool watched() const { return monitors != "manual"; }
};

inline json as_json(const parameters& of) {
  return {{"command", of.command},       {"regions", of.regions},   {"threads", of.threads},   {"repeats", of.repeats},
          {"seconds", of.seconds},       {"delay_ms", of.delay_ms}, {"pause_ms", of.pause_ms}, {"hits", of.hits},
          {"time_limit", of.time_limit}, {"only", of.only},         {"many", of.many},         {"refill", of.refill}};
}

/// Throws nlohmann's exception when a field is missing or has another type.
inline parameters parameters_from(const json& text) {
  parameters read;
  text.at("command").get_to(read.command);
  text.at("regions").get_to(read.regions);
  text.at("threads").get_to(read.threads);
  text.at("repeats").get_to(read.repeats);
  text.at("seconds").get_to(read.seconds);
  text.at("delay_ms").get_to(read.delay_ms);
  text.at("pause_ms").get_to(read.pause_ms);
  text.at("hits").get_to(read.hits);
  text.at("time_limit").get_to(read.time_limit);
  text.at("only").get_to(read.only);
  text.at("many").get_to(read.many);
  text.at("refill").get_to(read.refill);
  return read;
}

}  // namespace bench
