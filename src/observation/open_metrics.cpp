// SPDX-License-Identifier: BSD-3-Clause
#include "observation/metrics_labels.hpp"
#include "observation/metrics_text.hpp"
#include "observation/page.hpp"

#include <pinfold/limits.hpp>
#include <pinfold/observation/counters.hpp>
#include <pinfold/observation/open_metrics.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfold::observation {

namespace {

// The page's gauges have names for the present value; a metric's name ends with its unit.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> renamed{{{"waited", "waited_seconds"},
                                                                                {"bytes_now", "used_bytes"},
                                                                                {"entries_now", "used_entries"},
                                                                                {"leases_now", "leases"},
                                                                                {"open", "open_registrations"}}};
constexpr std::string_view reason_prefix = "misses_";
constexpr std::array<const char*, size_classes> class_names{"4KiB", "64KiB", "1MiB", "16MiB", "256MiB", "4GiB", "more"};

// Times below the first limit and above the last are not distinguished, for fewer series a cache.
constexpr bucket_choice call_times{3, 29, 1, false};  // 1 us to 69 s, in powers of two
constexpr bucket_choice ages{14, 38, 2, false};       // 2 ms to 9.8 h, in powers of four
constexpr bucket_choice hit_counts{0, 20, 2, true};   // 0 to a million, in powers of four

std::string metric_name(std::string_view counter) {
  const auto* const found =
      std::find_if(renamed.begin(), renamed.end(), [&](const auto& one) { return one.first == counter; });
  return "pinfold_" + std::string(found == renamed.end() ? counter : found->second);
}

const char* unit_name(counter_unit unit) noexcept {
  if (unit == counter_unit::bytes) return "bytes";
  return unit == counter_unit::nanoseconds ? "seconds" : "";
}

double seconds(std::chrono::nanoseconds time) noexcept { return std::chrono::duration<double>(time).count(); }

double limit(std::uint64_t value) noexcept {
  return value == unlimited ? std::numeric_limits<double>::infinity() : static_cast<double>(value);
}

template <class Value>
void add_processes(metrics_text& to, const processes& all, family of, Value value) {
  to.begin(std::move(of));
  for (const auto& one : all)
    if (one.process->state != process_state::ended) to.add(one.labels, value(*one.process));
}

template <class Value>
void add_caches(metrics_text& to, const processes& all, family of, Value value) {
  to.begin(std::move(of));
  for (const auto& process : all)
    for (const auto& one : process.caches) to.add(one.labels, value(*one.cache));
}

void add_states(metrics_text& to, const processes& all) {
  constexpr std::array<std::pair<const char*, process_state>, 4> states{{{"running", process_state::running},
                                                                         {"stopped", process_state::stopped},
                                                                         {"ended", process_state::ended},
                                                                         {"unknown", process_state::unknown}}};
  to.begin({"pinfold_process_state", family_type::gauge, "",
            "State of a process: 1 for the label that applies, 0 for the others"});
  for (const auto& one : all)
    for (const auto& [name, state] : states)
      to.add(one.labels + "," + label("state", name), std::uint64_t{one.process->state == state});
}

void add_process_families(metrics_text& to, const processes& all) {
  add_states(to, all);
  to.begin({"pinfold_process", family_type::info, "", "Version of the library in a process"});
  for (const auto& one : all)
    if (one.process->state != process_state::ended)
      to.add(one.labels + "," + label("version", one.process->library), std::uint64_t{1});
  add_processes(to, all,
                {"pinfold_published_age_seconds", family_type::gauge, "seconds", "Time since counters were published"},
                [](const auto& one) { return seconds(one.since_published); });
  add_processes(to, all, {"pinfold_memlock_limit_bytes", family_type::gauge, "bytes", "RLIMIT_MEMLOCK of a process"},
                [](const auto& one) { return limit(one.memlock_limit); });
  add_processes(to, all, {"pinfold_caches_made", family_type::counter, "", "Caches made that publish statistics"},
                [](const auto& one) { return one.caches_made; });
  add_processes(to, all,
                {"pinfold_caches_unlisted", family_type::gauge, "", "Caches that run, without room on the page"},
                [](const auto& one) { return one.caches_unlisted; });
  add_processes(to, all,
                {"pinfold_ranges_gone", family_type::counter, "", "Ranges of memory that monitors reported as gone"},
                [](const auto& one) { return one.ranges_gone; });
  add_processes(to, all, {"pinfold_events", family_type::counter, "", "Events written on the page"},
                [](const auto& one) { return one.events_written; });
}

void add_reasons(metrics_text& to, const processes& all) {
  to.begin({"pinfold_misses", family_type::counter, "",
            "Acquires that opened a registration, by what was registered before"});
  for (const auto& process : all)
    for (const auto& one : process.caches)
      for (const auto& counter : counters)
        if (std::string_view(counter.name).starts_with(reason_prefix))
          to.add(one.labels + "," + label("reason", std::string_view(counter.name).substr(reason_prefix.size())),
                 one.cache->counters.*counter.field);
}

void add_counters(metrics_text& to, const processes& all) {
  for (std::size_t i = 0; i < counters.size(); ++i) {
    const auto& counter = counters[i];
    if (std::string_view(counter.name).starts_with("misses")) continue;
    const auto type = counter.kind == counter_kind::counter ? family_type::counter : family_type::gauge;
    to.begin({metric_name(counter.name), type, unit_name(counter.unit), counter.help});
    for (const auto& process : all)
      for (const auto& one : process.caches) {
        const auto value = values_of(one.cache->counters)[i];
        if (counter.unit == counter_unit::nanoseconds)
          to.add(one.labels, static_cast<double>(value) / 1e9);
        else
          to.add(one.labels, value);
      }
  }
}

void add_cache_families(metrics_text& to, const processes& all) {
  to.begin({"pinfold_cache", family_type::info, "", "Monitors and shards of a cache"});
  for (const auto& process : all)
    for (const auto& one : process.caches)
      to.add(one.labels + "," + label("monitors", one.cache->monitors) + "," +
                 label("shards", std::to_string(one.cache->shards)),
             std::uint64_t{1});
  add_caches(to, all, {"pinfold_cache_running", family_type::gauge, "", "Whether a cache runs; 0 when it has ended"},
             [](const auto& one) { return std::uint64_t{!one.ended}; });
  add_caches(to, all, {"pinfold_limit_bytes", family_type::gauge, "bytes", "Bytes that the budget allows"},
             [](const auto& one) { return limit(one.max_bytes); });
  add_caches(to, all, {"pinfold_limit_entries", family_type::gauge, "", "Registrations that the budget allows"},
             [](const auto& one) { return limit(one.max_count); });
  add_caches(to, all,
             {"pinfold_errors", family_type::counter, "",
              "Failures of the driver, of monitors, and of acquires without the driver"},
             [](const auto& one) { return one.errors_written; });
}

bool is_empty(const histogram& of) noexcept {
  return std::all_of(of.counts.begin(), of.counts.end(), [](std::uint64_t one) { return one == 0; });
}

void add_by_size(metrics_text& to, const processes& all, family of,
                 std::array<histogram, size_classes> cache_snapshot::* values) {
  to.begin(std::move(of));
  for (const auto& process : all)
    for (const auto& one : process.caches)
      for (std::size_t i = 0; i < size_classes; ++i)
        if (const auto& each = (one.cache->*values)[i]; !is_empty(each))
          to.add(one.labels + "," + label("size_class", class_names[i]), each, call_times);
}

void add_whole(metrics_text& to, const processes& all, family of, histogram cache_snapshot::* values,
               const bucket_choice& buckets) {
  to.begin(std::move(of));
  for (const auto& process : all)
    for (const auto& one : process.caches)
      if (!is_empty(one.cache->*values)) to.add(one.labels, one.cache->*values, buckets);
}

void add_histograms(metrics_text& to, const processes& all) {
  using enum family_type;
  add_by_size(to, all, {"pinfold_miss_seconds", histogram, "seconds", "Duration of acquires that missed"},
              &cache_snapshot::misses);
  add_by_size(to, all, {"pinfold_open_seconds", histogram, "seconds", "Duration of the driver's opens"},
              &cache_snapshot::opens);
  add_by_size(to, all, {"pinfold_close_seconds", histogram, "seconds", "Duration of the driver's closes"},
              &cache_snapshot::closes);
  add_whole(to, all, {"pinfold_wait_seconds", histogram, "seconds", "Time that requests waited, for threads or room"},
            &cache_snapshot::waits, call_times);
  add_whole(to, all,
            {"pinfold_eviction_age_seconds", histogram, "seconds", "Age of registrations when they were evicted"},
            &cache_snapshot::age_at_eviction, ages);
  add_whole(to, all,
            {"pinfold_eviction_idle_seconds", histogram, "seconds",
             "Time since the last request for evicted registrations, at least"},
            &cache_snapshot::idle_at_eviction, ages);
  add_whole(to, all, {"pinfold_evicted_hits", histogram, "", "Hits of evicted registrations, sampled"},
            &cache_snapshot::hits_of_evicted, hit_counts);
}

}  // namespace

const char* media_type_of(metrics_format as) noexcept {
  return as == metrics_format::open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                            : "text/plain; version=0.0.4; charset=utf-8";
}

std::string open_metrics(std::span<const process_snapshot> of, metrics_format as, std::uint64_t unreadable) {
  const auto all = label_all(of);
  metrics_text text(as);
  text.begin({"pinfold_pages", family_type::gauge, "", "Statistics pages that were read"});
  text.add("", std::uint64_t{of.size()});
  text.begin({"pinfold_unreadable_pages", family_type::gauge, "", "Statistics pages that could not be read"});
  text.add("", unreadable);
  add_process_families(text, all);
  add_cache_families(text, all);
  add_counters(text, all);
  add_reasons(text, all);
  add_histograms(text, all);
  return text.end();
}

result<std::string> open_metrics_here(metrics_format as) {
  const auto* const own = page::if_there();
  if (own == nullptr) return fail_errno(errc::invalid_handle, ENOENT, "no cache of this process publishes statistics");
  const auto seen = read_page(own->path());
  if (!seen) return tl::unexpected(seen.error());
  return open_metrics({&*seen, 1}, as);
}

}  // namespace pinfold::observation
