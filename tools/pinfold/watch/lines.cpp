// SPDX-License-Identifier: BSD-3-Clause
#include "watch/lines.hpp"

#include "cli/sizes.hpp"

#include <pinfold/error.hpp>

#include <array>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tool::watch {

namespace {

using pinfold::observation::event_id;
using pinfold::observation::event_record;
using pinfold::observation::gone_source;
using pinfold::observation::name_of;

constexpr std::int64_t second = 1'000'000'000;

event_id kind_of(const event_record& one) { return static_cast<event_id>(one.kind); }

const char* source_of(const event_record& one) {
  switch (static_cast<gone_source>(one.native)) {
    case gone_source::program: return "the program";
    case gone_source::hooks: return "hooks";
    case gone_source::userfaultfd: return "userfaultfd";
    case gone_source::bpf: return "bpf";
  }
  return "?";
}

std::string duration_text(std::uint64_t ns) {
  if (ns < 10'000) return fmt::format("{} ns", ns);
  if (ns < 10'000'000) return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3);
  if (ns < 10 * static_cast<std::uint64_t>(second)) return fmt::format("{:.1f} ms", static_cast<double>(ns) / 1e6);
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

std::string failure_of(const shown_event& what) {
  return what.reason.empty() ? fmt::format("code {}", what.seen.record.native) : what.reason;
}

// What `value` and `native` say for this kind.
std::string detail_of(const shown_event& what) {
  const auto& one = what.seen.record;
  switch (kind_of(one)) {
    case event_id::gone: return fmt::format("seen by {}", source_of(one));
    case event_id::invalidated: return one.value == 1 ? "" : fmt::format("{} registrations", one.value);
    case event_id::evicted: return fmt::format("{} old", duration_text(one.value));
    case event_id::leased_memory_gone:
    case event_id::leases_outlive: return fmt::format("{} leases", one.value);
    case event_id::open_failed:
    case event_id::close_failed: return fmt::format("{} after {}", failure_of(what), duration_text(one.value));
    case event_id::slow_call: return duration_text(one.value);
    default: return one.native == 0 && what.reason.empty() ? "" : failure_of(what);
  }
}

std::string clock_text(std::int64_t at_ns) {
  const auto seconds = static_cast<std::time_t>(at_ns / second);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
  return fmt::format("{}.{:03}", text.data(), at_ns % second / 1'000'000);
}

}  // namespace

std::string as_text(const shown_event& what) {
  const auto& one = what.seen.record;
  auto line =
      fmt::format("{} {:<18} {:<28}", clock_text(what.at_ns), name_of(kind_of(one)), range_text(one.begin, one.end));
  if (const auto detail = detail_of(what); !detail.empty()) line += "  " + detail;
  if (!what.cache.empty()) line += "  " + what.cache;
  if (one.thread != 0) line += fmt::format("  thread {}", one.thread);
  line.erase(line.find_last_not_of(' ') + 1);
  line += "\n";
  for (const auto& frame : what.stack) line += "             " + frame + "\n";
  return line;
}

std::string as_json(const shown_event& what) {
  const auto& one = what.seen.record;
  nlohmann::ordered_json made{{"number", what.seen.number},
                              {"time_ns", what.at_ns},
                              {"kind", name_of(kind_of(one))},
                              {"cache", what.cache},
                              {"begin", fmt::format("{:#x}", one.begin)},
                              {"bytes", one.end > one.begin ? one.end - one.begin : 0},
                              {"value", one.value},
                              {"thread", one.thread}};
  if (kind_of(one) == event_id::gone)
    made["source"] = source_of(one);
  else
    made["native"] = one.native;
  if (!what.reason.empty()) made["reason"] = what.reason;
  if (!what.stack.empty()) made["stack"] = what.stack;
  return made.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<std::string> kinds() {
  std::vector<std::string> all;
  for (std::uint32_t i = 1; std::strcmp(name_of(static_cast<event_id>(i)), "?") != 0; ++i)
    all.emplace_back(name_of(static_cast<event_id>(i)));
  return all;
}

}  // namespace tool::watch
