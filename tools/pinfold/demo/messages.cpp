// SPDX-License-Identifier: BSD-3-Clause
// The demo's first part: verified messages, with the cache off and on.
#include "cli/failure.hpp"
#include "cli/report.hpp"
#include "cli/sizes.hpp"
#include "demo/stage.hpp"
#include "perf/measure.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string>

namespace tool {
namespace {

struct plan {
  std::size_t bytes;
  std::size_t count;
};

constexpr double least_gain = 1.05;  // the least gain that the table, with one decimal, shows as more than 1.0

constexpr std::array<plan, 4> plans{{{4 << 10, 4000}, {64 << 10, 4000}, {1 << 20, 600}, {16 << 20, 20}}};

// Copies the peers' messages in turn. Each target is wiped before and checked after its copy, outside the timed region.
latency transfer(demo_stage& stage, memfd_cache& cache, const std::vector<message>& messages, std::size_t count) {
  cached_reader<message, host_target, memfd_cache> how(cache);
  host_target into(messages.front().size);
  nanoseconds samples;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& wanted = messages[i % messages.size()];
    need(into.wipe(wanted.size), "cannot wipe the reader's buffer");
    pinfold::result<void> outcome;
    samples.push_back(time_of([&] { outcome = how.read(whole(wanted), into); }));
    need(outcome, "cannot read a message");
    stage.check(into.bytes(), wanted);
  }
  return summarise(std::move(samples));
}

double rate(std::size_t bytes, const latency& measured) { return static_cast<double>(bytes) / measured.p50; }

json message_row(demo_stage& stage, memfd_cache& off, const plan& sizes, std::uint32_t buffer) {
  std::vector<message> messages;
  for (std::size_t peer = 0; peer < demo_stage::peer_count; ++peer) {
    messages.push_back(stage.provide(peer, buffer, sizes.bytes));
  }
  const auto slow = transfer(stage, off, messages, sizes.count);
  const auto fast = transfer(stage, stage.cache(), messages, sizes.count);
  return {{"size", sizes.bytes},
          {"messages", 2 * sizes.count},
          {"off_ns", slow.p50},
          {"on_ns", fast.p50},
          {"off_gb_per_s", rate(sizes.bytes, slow)},
          {"on_gb_per_s", rate(sizes.bytes, fast)},
          {"speedup", slow.p50 / fast.p50}};
}

void require_reuse(const pinfold::statistics& off, const pinfold::statistics& on, std::size_t messages) {
  require(off.opens == messages && off.closes == messages, "without retain every message opens and closes");
  require(on.opens == plans.size() * demo_stage::peer_count, "with the cache every buffer is opened once");
  require(on.hits == messages - on.misses, "with the cache every other message is a hit");
}

// A check that could not fail would prove nothing: it must detect one changed bit anywhere.
void require_sharp_check() {
  std::array<std::byte, 100> bytes{};
  fill(bytes, 1);
  require(holds(bytes, 1) && !holds(bytes, 2), "the check distinguishes one message from another");
  for (auto& byte : bytes) {
    byte ^= std::byte{1};
    require(!holds(bytes, 1), "the check detects one changed bit");
    byte ^= std::byte{1};
  }
}

// Both columns include the copy, and the larger the message, the larger its share of the time.
void explain_losses(const json& rows) {
  std::string sizes;
  for (const auto& row : rows)
    if (row.at("speedup").get<double>() < least_gain)
      sizes += (sizes.empty() ? "" : ", ") + size_text(row.at("size").get<std::size_t>());
  if (sizes.empty()) return;
  fmt::print(
      "{}",
      paragraph("  ", "no gain at " + sizes +
                          ": the copy takes most of the time at this size, and varies with the load of this machine"));
}

}  // namespace

void show_messages(demo_stage& stage) {
  require_sharp_check();
  memfd_cache off(stage.importer(), {.name = "off", .retain = false});
  auto rows = json::array();
  std::size_t messages = 0;
  for (std::uint32_t buffer = 0; buffer < plans.size(); ++buffer) {
    rows.push_back(message_row(stage, off, plans.at(buffer), buffer));
    messages += plans.at(buffer).count;
  }
  fmt::print("{}", table({size("message", "size"), count("messages", "messages"), microseconds("off[us]", "off_ns", 2),
                          microseconds("on[us]", "on_ns", 2), number("off[GB/s]", "off_gb_per_s", 1, 2),
                          number("on[GB/s]", "on_gb_per_s", 1, 2), number("speed-up", "speedup", 1, 1)},
                         rows));
  require_reuse(off.statistics(), stage.counters(), messages);
  const auto on = stage.counters();
  const auto summary =
      fmt::format("medians; off: opened and closed for each message, {} opens; on: {} opens, {} hits; {} bytes checked",
                  off.statistics().opens, on.opens, on.hits, stage.take_checked());
  fmt::print("\n{}", paragraph("  ", summary));
  explain_losses(rows);
}

}  // namespace tool
