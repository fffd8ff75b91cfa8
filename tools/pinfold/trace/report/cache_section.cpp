// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/cache_section.hpp"

#include "cli/sizes.hpp"
#include "trace/report/cache_charts.hpp"
#include "trace/report/html.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

namespace tool {
namespace {

using html::count_text;
using html::escaped;
using html::percent_text;
using html::room_text;
using html::time_text;

// Text with identifiers between back quotes.
std::string with_code(const std::string& text) {
  std::string made;
  bool inside = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('`', begin), text.size());
    made += escaped(std::string_view(text).substr(begin, end - begin));
    if (end < text.size()) made += inside ? "</code>" : "<code>";
    inside = !inside;
    begin = end + 1;
  }
  return made;
}

std::string advice_box(const std::vector<std::string>& advice) {
  std::string text = "<div class=\"advice\"><h3>Advice</h3>\n";
  if (advice.empty()) return text + "<p>Nothing to advise.</p></div>\n";
  text += "<ul>\n";
  for (const auto& one : advice) text += "<li>" + with_code(one) + "</li>\n";
  return text + "</ul></div>\n";
}

std::string table_of_kinds(const cache_analysis& of) {
  html::table shown{
      .caption = "Misses by kind", .headings = {"kind", "misses", "share", "in the driver", "mean open"}, .rows = {}};
  const auto add = [&](const char* name, const miss_total& total) {
    shown.rows.push_back({name, count_text(total.misses),
                          percent_text(static_cast<double>(total.misses), static_cast<double>(of.misses)),
                          time_text(total.opened_ns),
                          total.misses == 0 ? "–" : time_text(total.opened_ns / static_cast<double>(total.misses))});
  };
  for (std::size_t kind = 0; kind < miss_kinds; ++kind)
    add(word_for(static_cast<miss_kind>(kind)), of.by_kind.at(kind));
  add("all", {of.misses, of.opened_ns});
  return html::to_html(shown);
}

std::string table_of_budgets(const cache_analysis& of, bool in_entries) {
  html::table shown{.caption =
                        "Misses (and time in the driver) of each policy, replayed. <code>second-chance</code> is "
                        "the cache’s own policy; <code>offline</code> knows the future.",
                    .headings = {"budget"},
                    .rows = {}};
  for (const char* policy : of.policies) shown.headings.emplace_back(policy);
  for (const auto budget : of.what_if_budgets) {
    std::vector<std::string> row{room_text(budget, in_entries) + (of.budget == budget ? " (the cache's)" : "")};
    for (const char* policy : of.policies) {
      const auto& seen = of.replayed(budget, policy);
      row.push_back(
          fmt::format("{}<br><span class=\"quiet\">{}</span>", count_text(seen.misses), time_text(seen.cost_ns)));
    }
    shown.rows.push_back(std::move(row));
  }
  return html::to_html(shown);
}

std::string table_of_ranges(const cache_analysis& of) {
  bool peers = false;
  for (const auto& one : of.ranges) peers |= one.peer != 0;
  html::table shown{.caption = "The registrations that took most time in the driver",
                    .headings = {"memory", "bytes", "requests", "misses", "in the driver", "share"},
                    .rows = {}};
  if (peers) shown.headings.insert(shown.headings.begin() + 1, "peer");
  for (std::size_t i = 0; i < of.costliest.size(); ++i) {
    const auto& use = of.costliest[i];
    std::vector<std::string> row{fmt::format("<code>{:#x}</code>", of.ranges[i].memory.begin),
                                 size_text(of.ranges[i].memory.size()),
                                 count_text(use.requests),
                                 count_text(use.misses),
                                 time_text(use.opened_ns),
                                 percent_text(use.opened_ns, of.opened_ns)};
    if (peers) row.insert(row.begin() + 1, fmt::format("<code>{:x}</code>", of.ranges[i].peer));
    shown.rows.push_back(std::move(row));
  }
  return html::to_html(shown);
}

std::string summary(const cache_analysis& of, bool in_entries) {
  auto text = fmt::format(
      "<p>{} requests, of which {} were hits. The {} misses took {} in the driver, the longest {}. {} registrations "
      "have "
      "{} together; {} of them ({}) served a single request.</p>\n",
      count_text(of.requests),
      percent_text(static_cast<double>(of.requests - of.misses), static_cast<double>(of.requests)),
      count_text(of.misses), time_text(of.opened_ns), time_text(static_cast<double>(of.longest_ns)),
      count_text(of.registrations), size_text(of.footprint), count_text(of.once.registrations),
      size_text(of.once.bytes));
  if (of.budget)
    text += fmt::format("<p>Replayed with the budget of {}: {} misses, {} evictions, {} in the driver.</p>\n",
                        room_text(*of.budget, in_entries), count_text(of.replayed(*of.budget, "second-chance").misses),
                        count_text(of.replayed(*of.budget, "second-chance").evictions),
                        time_text(of.replayed(*of.budget, "second-chance").cost_ns));
  return text;
}

}  // namespace

std::string cache_section(const page_cache& cache, const std::string& id) {
  const auto& of = cache.figures;
  const bool in_entries = cache.in_entries;
  auto text = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", id, escaped(of.name));
  text += summary(of, in_entries) + advice_box(cache.advice);
  if (of.misses > 0) {
    text += "<h3>Over time</h3>\n" + to_svg(misses_chart(of, id)) + table_of_kinds(of) + to_svg(driver_chart(of, id));
  }
  text += to_svg(working_set_chart(of, id, in_entries));
  if (of.registrations > 1)
    text += "<h3>With another budget or policy</h3>\n" + to_svg(budgets_chart(of, id, in_entries)) +
            table_of_budgets(of, in_entries);
  if (of.policies.size() < report_policies.size())
    text +=
        "<p class=\"quiet\">The cache has many requests: <code>pinfold replay</code> compares other policies.</p>\n";
  return text + "<h3>Costliest registrations</h3>\n" + table_of_ranges(of) + "</section>\n";
}

}  // namespace tool
