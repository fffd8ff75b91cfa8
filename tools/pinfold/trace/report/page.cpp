// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/page.hpp"

#include "cli/sizes.hpp"
#include "trace/report/cache_section.hpp"
#include "trace/report/chart.hpp"
#include "trace/report/html.hpp"
#include "trace/report/page_style.hpp"

#include <pinfold/version.hpp>

#include <fmt/format.h>

namespace tool {
namespace {

using html::count_text;
using html::escaped;
using html::percent_text;
using html::time_text;

struct sums {
  std::uint64_t requests = 0;
  std::uint64_t misses = 0;
  double opened_ns = 0;
  std::size_t bytes = 0;
  std::size_t registrations = 0;
};

sums sums_of(const page_content& content) {
  sums made;
  for (const auto* list : {&content.all, &content.rest}) {
    for (const auto& [figures, advice, in_entries, failed] : *list) {
      made.requests += figures.requests;
      made.misses += figures.misses;
      made.opened_ns += figures.opened_ns;
      made.bytes += figures.footprint;
      made.registrations += figures.registrations;
    }
  }
  return made;
}

std::string tile(const char* name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, value);
}

std::string tiles_for(const page_content& content) {
  const auto all = sums_of(content);
  return "<dl class=\"tiles\">\n" + tile("caches", count_text(content.all.size() + content.rest.size())) +
         tile("requests", count_text(all.requests)) +
         tile("hits", percent_text(static_cast<double>(all.requests - all.misses), static_cast<double>(all.requests))) +
         tile("misses", count_text(all.misses)) + tile("in the driver", time_text(all.opened_ns)) +
         tile("registrations", count_text(all.registrations)) + tile("their bytes", size_text(all.bytes)) + "</dl>\n";
}

std::string note_of_cut_lines(std::uint64_t number) {
  if (number == 0) return {};
  return fmt::format("<p>Lines that killed processes left incomplete, and that are skipped: {}</p>\n",
                     count_text(number));
}

std::string heading_of(const page_cache& cache, std::size_t number, bool linked) {
  const auto name = escaped(cache.figures.name);
  return linked ? fmt::format("<a href=\"#c{}\">{}</a>", number, name) : name;
}

std::string table_of_caches(const page_content& content) {
  html::table shown{
      .caption = "The caches, by the time that they spent in the driver",
      .headings = {"cache", "requests", "hits", "misses", "in the driver", "registrations", "bytes", "failed acquires"},
      .rows = {}};
  std::size_t number = 0;
  for (const auto* list : {&content.all, &content.rest}) {
    for (const auto& cache : *list) {
      const auto& of = cache.figures;
      shown.rows.push_back(
          {heading_of(cache, number++, list == &content.all), count_text(of.requests),
           percent_text(static_cast<double>(of.requests - of.misses), static_cast<double>(of.requests)),
           count_text(of.misses), time_text(of.opened_ns), count_text(of.registrations), size_text(of.footprint),
           cache.failed.empty() ? "0" : escaped(cache.failed)});
    }
  }
  return html::to_html(shown);
}

constexpr const char* explanation = R"(<h2>How to read this page</h2>
<p>A <em>request</em> is an acquire of a registration; a <em>hit</em> found one that was open, a <em>miss</em> called
the driver. The trace has the time of each open; it has neither clock times, nor closes, nor evictions. Misses are told
apart by their memory: <em>cold</em> overlaps nothing that the cache registered before; <em>extent</em> overlaps
earlier registrations and lies in none of them; <em>again</em> lies in an earlier registration, which was evicted,
invalidated, or had not all the access that the request needs. <em>Replayed</em> figures are computed as
<code>pinfold replay</code> does: one request after the other, without leases and invalidations, with the recorded cost
of each registration.</p>
)";

}  // namespace

std::string to_page(const page_content& content) {
  auto text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>pinfold report: {0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"pinfold {1}\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<style>\n{2}</style>\n</head>\n<body>\n{3}<main>\n<header>\n<h1>{0}</h1>\n"
      "<p class=\"quiet\">The requests of a recorded trace, by <code>pinfold report</code> {1}</p>\n{4}</header>\n",
      escaped(content.source), PINFOLD_VERSION, page_style, chart_patterns(), note_of_cut_lines(content.cut_lines));
  text += tiles_for(content) + table_of_caches(content);
  for (std::size_t i = 0; i < content.all.size(); ++i) text += cache_section(content.all[i], fmt::format("c{}", i));
  return text + explanation + "</main>\n</body>\n</html>\n";
}

}  // namespace tool
