// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/events.hpp>
#include <pinfold/statistics.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace pinfold {
namespace {

struct counter {
  std::string_view name;
  std::uint64_t statistics::* value;
};

using s = statistics;
constexpr std::array all_counters{
    counter{"hits", &s::hits},
    counter{"valid", &s::valid},
    counter{"invalid", &s::invalid},
    counter{"misses", &s::misses},
    counter{"evicted", &s::evicted},
    counter{"expired", &s::expired},
    counter{"found", &s::found},
    counter{"find_misses", &s::find_misses},
    counter{"acquires", &s::acquires},
    counter{"failed_acquires", &s::failed_acquires},
    counter{"misses_cold", &s::misses_cold},
    counter{"misses_invalidated", &s::misses_invalidated},
    counter{"misses_access", &s::misses_access},
    counter{"misses_extent", &s::misses_extent},
    counter{"misses_evicted", &s::misses_evicted},
    counter{"opens", &s::opens},
    counter{"closes", &s::closes},
    counter{"failed_opens", &s::failed_opens},
    counter{"failed_closes", &s::failed_closes},
    counter{"conflicts", &s::conflicts},
    counter{"bypasses", &s::bypasses},
    counter{"unmonitored", &s::unmonitored},
    counter{"monitor_failures", &s::monitor_failures},
    counter{"file_backed", &s::file_backed},
    counter{"invalidated_while_leased", &s::invalidated_while_leased},
    counter{"audits", &s::audits},
    counter{"failed_audits", &s::failed_audits},
    counter{"sink_failures", &s::sink_failures},
    counter{"open", &s::open},
    counter{"bytes_now", &s::bytes_now},
    counter{"entries_now", &s::entries_now},
    counter{"peak_bytes", &s::peak_bytes},
    counter{"peak_entries", &s::peak_entries},
    counter{"leases_now", &s::leases_now},
    counter{"peak_leases", &s::peak_leases},
    counter{"quarantined", &s::quarantined},
    counter{"bypass_bytes", &s::bypass_bytes},
    counter{"requests_waiting", &s::requests_waiting},
    counter{"closes_due", &s::closes_due},
};

constexpr const char* name_of(severity level) noexcept {
  switch (level) {
    case severity::debug: return "debug";
    case severity::info: return "info";
    case severity::warning: return "warning";
    case severity::failure: return "failure";
  }
  return "unknown";
}

std::string hexadecimal(std::uintptr_t value) {
  std::array<char, 2 * sizeof value> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

void append_place(std::string& line, const event& what) {
  if (what.where.empty()) return;
  line += " peer " + std::to_string(what.peer.value) + " [" + hexadecimal(what.where.begin) + ", " +
          hexadecimal(what.where.end) + ")";
}

void append_holders(std::string& line, const event& what) {
  if (what.leases != 0) line += ", " + std::to_string(what.leases) + (what.leases == 1 ? " lease" : " leases") + " out";
  if (what.owner != 0) line += ", opened by thread " + std::to_string(what.owner);
}

void append_request(std::string& line, const event& what) {
  if (what.kind != event_kind::requested || what.cause != nullptr) return;
  line += what.hit ? ", hit" : ", opened in " + std::to_string(what.opened_for.count()) + " ns";
  line += ", registered [" + hexadecimal(what.registered.begin) + ", " + hexadecimal(what.registered.end) + ")";
}

}  // namespace

const char* name_of(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::evicted: return "evicted";
    case event_kind::replaced: return "replaced";
    case event_kind::conflict: return "conflict";
    case event_kind::invalidated_while_leased: return "invalidated_while_leased";
    case event_kind::close_failed: return "close_failed";
    case event_kind::leases_outlive_cache: return "leases_outlive_cache";
    case event_kind::closes_outlive_cache: return "closes_outlive_cache";
    case event_kind::statistics: return "statistics";
    case event_kind::audit_failed: return "audit_failed";
    case event_kind::requested: return "requested";
    case event_kind::not_kept: return "not_kept";
    case event_kind::monitor_degraded: return "monitor_degraded";
    case event_kind::waits_for_node_budget: return "waits_for_node_budget";
    case event_kind::refused_by_node_budget: return "refused_by_node_budget";
  }
  return "unknown";
}

const char* name_of(entry_state state) noexcept {
  switch (state) {
    case entry_state::free: return "free";
    case entry_state::opening: return "opening";
    case entry_state::failed: return "failed";
    case entry_state::live: return "live";
    case entry_state::evicting: return "evicting";
    case entry_state::draining: return "draining";
    case entry_state::closing: return "closing";
    case entry_state::quarantined: return "quarantined";
  }
  return "unknown";
}

std::string describe(const event& what) {
  std::string line = std::string(what.cache) + ": " + name_of(what.level) + ": " + name_of(what.kind);
  append_place(line, what);
  append_holders(line, what);
  append_request(line, what);
  if (what.cause != nullptr) line += ": " + describe(*what.cause);
  if (*what.text != '\0') line += std::string(": ") + what.text;
  return line;
}

std::string describe(const statistics& counters) {
  std::string line;
  for (const auto& [name, value] : all_counters) {
    line.append(name).append("=").append(std::to_string(counters.*value)).append(" ");
  }
  return line + "waited_ns=" + std::to_string(counters.waited.count());
}

event_sink log_to_stderr(severity least) {
  return [least](const event& what) {
    if (what.level < least) return;
    const auto line = describe(what) + "\n";
    // One call, so that lines of several threads do not mix.
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
}

}  // namespace pinfold
