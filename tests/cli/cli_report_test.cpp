// SPDX-License-Identifier: BSD-3-Clause
// `pinfold report` on traces with a known content: figures, advice, and names that look like HTML.
#include "support/processes/tool_run.hpp"
#include "support/processes/traces.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <string>
#include <sys/stat.h>

namespace pinfold::testing::cli_report_test {
namespace {

namespace fs = std::filesystem;

class cli_report : public ::testing::Test {
 protected:
  cli_report() { fs::create_directories(folder_); }
  ~cli_report() override { fs::remove_all(folder_); }

  std::string write_trace(const std::string& lines) const {
    std::ofstream(path_) << "# pinfold trace 1\n" << lines;
    return "'" + path_ + "'";
  }
  std::string page_of(const std::string& lines, const std::string& options = "") const {
    const auto seen = run("report -o - " + options + " " + write_trace(lines));
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    return seen.out;
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const fs::path folder_ = fs::canonical(::testing::TempDir()) / ("pinfold_report_" + std::to_string(getpid()));
  const std::string path_ = folder_ / "a.trace";
};

// Returns the page's text: without styles, tags and blanks within numbers, with one line for each row of a table.
std::string text_of(std::string page) {
  const auto replace = [&page](const char* what, const char* by) {
    page = std::regex_replace(page, std::regex(what), by);
  };
  page.erase(0, page.find("<body>"));
  replace("\n", " ");
  replace("</tr>|</p>|</li>|</h[1-3]>", "\n");
  replace("</t[hd]>|<br>", " | ");
  replace("<[^>]*>", "");
  replace("\xE2\x80\xAF", "");
  return page;
}

// Returns the advice as text.
std::string advice_in(const std::string& page) {
  const auto begin = page.find("<div class=\"advice\">");
  EXPECT_NE(begin, std::string::npos);
  return text_of("<body>" + page.substr(begin, page.find("</div>", begin) - begin));
}

std::size_t number_of(const std::string& word, const std::string& text) {
  std::size_t number = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++number;
  return number;
}

// Returns a trace without its first line, whose requests a function makes.
std::string trace_of(std::uint64_t requests, const std::function<std::string(std::uint64_t)>& make) {
  std::string lines = "cache 1.1 mine\n";
  for (std::uint64_t i = 0; i < requests; ++i) lines += make(i);
  return lines;
}

std::string page_number(int i) { return std::to_string(i); }

TEST_F(cli_report, figures_are_those_of_the_trace_and_of_replay) {
  const auto lines = random_trace(1, 5000);
  const auto page = text_of(page_of(lines, "--budget 200K"));
  const auto misses = 5000 - number_of(" hit\n", lines);
  EXPECT_NE(page.find("1.1 random | 5000 | "), std::string::npos) << page;
  EXPECT_NE(page.find("The " + std::to_string(misses) + " misses took "), std::string::npos) << page;
  EXPECT_NE(page.find("all | " + std::to_string(misses) + " | 100.0 % | "), std::string::npos) << page;
  const auto rows = rows_of(run("replay --json --budget 200K '" + path_ + "'"));
  std::string expected = "200 KiB (the cache's) | ";
  for (const char* policy : {"second-chance", "lru", "sieve", "classes-2", "offline"}) {
    const auto found = std::ranges::find_if(rows, [policy](const json& row) { return row.at("policy") == policy; });
    ASSERT_NE(found, rows.end()) << policy;
    expected += std::to_string(found->at("misses").get<int>()) + " | [0-9.]+ .?.s | ";
  }
  EXPECT_TRUE(std::regex_search(page, std::regex(std::regex_replace(expected, std::regex("[()|]"), "\\$&")))) << page;
}

TEST_F(cli_report, too_small_a_budget_is_noticed) {
  const auto lines = trace_of(1000, [](std::uint64_t i) { return request_line(1 + i % 100, 1, "2000"); });
  const auto advice = advice_in(page_of(lines));
  EXPECT_NE(advice.find("90.0 % of the misses open memory again"), std::string::npos) << advice;
  EXPECT_NE(advice.find("A budget of 400 KiB would have saved 90.0 % of the misses: 100 instead of 1000"),
            std::string::npos)
      << advice;
  EXPECT_NE(advice_in(page_of(lines, "--budget 40K")).find("A budget of 400 KiB"), std::string::npos);
  EXPECT_NE(advice_in(page_of(lines, "--budget 10")).find("A budget of 100 registrations"), std::string::npos);
}

// The same requests by two caches, one of which had the room for them: its misses have another reason.
TEST_F(cli_report, each_cache_is_advised_by_its_recorded_budget) {
  std::string lines = "cache 1.1 small\n# budget 1.1 40960 unlimited\ncache 1.2 large\n# budget 1.2 unlimited 500\n";
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto line = request_line(1 + i % 100, 1, "2000");
    lines += line + std::regex_replace(line, std::regex("^1.1"), "1.2");
  }
  const auto page = text_of(page_of(lines));
  EXPECT_NE(page.find("Replayed with the budget of 40 KiB: 1000 misses"), std::string::npos) << page;
  EXPECT_NE(page.find("A budget of 400 KiB would have saved"), std::string::npos) << page;
  EXPECT_NE(page.find("Replayed with the budget of 500 registrations: 100 misses"), std::string::npos) << page;
  EXPECT_NE(page.find("With a budget of 500 registrations, evictions explain 100 misses"), std::string::npos) << page;
  EXPECT_EQ(number_of("would have saved", page), 1U) << page;
}

TEST_F(cli_report, acquires_that_failed_are_counted) {
  const std::string refused = "# failed 1.2 0 0x1000 8192 larger_than_budget\n";
  const auto lines = "cache 1.1 mine\ncache 1.2 refuses\n" + refused + refused + request_line(1, 1, "5");
  const auto page = text_of(page_of(lines));
  EXPECT_NE(page.find("1.2 refuses | 0 |"), std::string::npos) << page;
  EXPECT_NE(page.find("| 2 larger_than_budget |"), std::string::npos) << page;
  expect_refused("report " + write_trace("cache 1.2 refuses\n" + refused),
                 "no requests but failed ones: 1 larger_than_budget");
  expect_refused("report " + write_trace("cache 1.2 refuses\n# failed 1.2 0 0x1000 8192 \x1b[2Jred\n"),
                 "no requests but failed ones: 1 ?[2Jred");
}

TEST_F(cli_report, half_lines_of_killed_processes_are_counted) {
  const auto cut = "1.1 0 0x1000 4096 0x10\n\n";
  const auto trace = write_trace("cache 1.1 mine\n" + request_line(1, 1, "5") + cut + request_line(1, 1, "hit") + cut);
  const auto seen = run("report -o - " + trace);
  EXPECT_EQ(seen.status, 0);
  EXPECT_NE(seen.complaints.find("incomplete, and that are skipped: 2\n"), std::string::npos) << seen.complaints;
  EXPECT_NE(seen.out.find("incomplete, and that are skipped: 2<"), std::string::npos);
  EXPECT_NE(text_of(seen.out).find("1.1 mine | 2 | "), std::string::npos) << text_of(seen.out);
  EXPECT_EQ(page_of("cache 1.1 mine\n" + request_line(1, 1, "5")).find("skipped"), std::string::npos);
}

TEST_F(cli_report, pipe_is_read_once) {
  const auto whole = page_of(
      "cache 1.1 mine\n# budget 1.1 8192 unlimited\n# failed 1.1 0 0x0 5 over_budget\n"
      "1.1 0 0x1000 100 0x1000 4096 500\n1.1 0 0x2000 100 0x2000 4096 500\n");
  const auto with_path = [](std::string page, const std::string& path) {
    for (auto at = page.find(path); at != std::string::npos; at = page.find(path))
      page.replace(at, path.size(), "TRACE");
    return page;
  };
  const auto piped = run("report -o - /dev/stdin", "cat '" + path_ + "' |");
  EXPECT_EQ(piped.status, 0) << piped.complaints;
  EXPECT_NE(piped.out.find("over_budget"), std::string::npos);
  EXPECT_EQ(with_path(piped.out, "/dev/stdin").size(), with_path(whole, path_).size());
  const auto fifo = path_ + ".fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto named = run("report -o - '" + fifo + "'", "cat '" + path_ + "' >'" + fifo + "' & timeout 20");
  EXPECT_EQ(named.status, 0) << named.complaints;
  EXPECT_EQ(with_path(named.out, fifo).size(), with_path(whole, path_).size());
}

TEST_F(cli_report, misses_that_the_budget_does_not_explain_are_noticed) {
  const auto lines = trace_of(1000, [](std::uint64_t i) { return request_line(1 + i % 100, 1, "2000"); });
  const auto advice = advice_in(page_of(lines, "--budget 500K"));
  EXPECT_NE(advice.find("evictions explain 100 misses, but the trace has 1000"), std::string::npos) << advice;
  EXPECT_EQ(advice.find("would have saved"), std::string::npos) << advice;
}

TEST_F(cli_report, growing_requests_are_noticed) {
  const auto lines =
      trace_of(60, [](std::uint64_t i) { return request_line(1, 1 + i, "2000") + request_line(1, 1 + i, "hit"); });
  const auto advice = advice_in(page_of(lines));
  EXPECT_NE(advice.find("98.3 % of the misses overlap memory"), std::string::npos) << advice;
  EXPECT_NE(advice.find("PINFOLD_MERGE=overlaps"), std::string::npos) << advice;
}

TEST_F(cli_report, registrations_without_reuse_are_noticed) {
  const auto lines = trace_of(200, [](std::uint64_t i) {
    return i % 2 == 0 ? request_line(1, 1, i == 0 ? "9" : "hit") : request_line(2 + i, 1, "2000");
  });
  const auto advice = advice_in(page_of(lines));
  EXPECT_NE(advice.find("99.0 % of the registrations (400 KiB) serve a single request"), std::string::npos) << advice;
}

TEST_F(cli_report, unused_budget_is_noticed) {
  const auto lines =
      trace_of(200, [](std::uint64_t i) { return request_line(1 + i % 10, 1, i < 10 ? "2000" : "hit"); });
  const auto advice = advice_in(page_of(lines, "--budget 1M"));
  EXPECT_NE(advice.find("The budget of 1 MiB is never used: all registrations together take 40 KiB"), std::string::npos)
      << advice;
}

TEST_F(cli_report, advises_nothing_without_a_reason) {
  const auto lines =
      trace_of(1000, [](std::uint64_t i) { return request_line(1 + i % 50, 1, i < 50 ? "2000" : "hit"); });
  EXPECT_NE(advice_in(page_of(lines)).find("Nothing to advise."), std::string::npos);
  EXPECT_NE(advice_in(page_of(lines, "--budget 200K")).find("Nothing to advise."), std::string::npos);
  const auto few = trace_of(10, [](std::uint64_t i) { return request_line(1 + i % 2, 1, "2000"); });
  EXPECT_NE(advice_in(page_of(few)).find("Nothing to advise."), std::string::npos) << "too few to judge";
}

TEST_F(cli_report, names_are_text) {
  const auto page = page_of("cache 1.1 </title><script>alert(\"1\")</script>&amp;\xFF'\n" + request_line(1, 1, "5"));
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;\xEF\xBF\xBD&#39;"),
            std::string::npos);
  EXPECT_EQ(number_of("</title>", page.substr(0, page.find("<style>"))), 1U);
}

TEST_F(cli_report, reasons_of_failed_acquires_are_text) {
  const auto page =
      page_of("cache 1.1 mine\n# failed 1.1 0 0x0 1 <img/src=x/onerror=alert(1)>\n" + request_line(1, 1, "5") +
              "cache 1.2 refuses\n# failed 1.2 0 0x0 1 <meta/http-equiv=refresh>\n");
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<meta/"), std::string::npos);
  EXPECT_NE(page.find("<td>1 &lt;img/src=x/onerror=alert(1)&gt;</td>"), std::string::npos) << page;
}

TEST_F(cli_report, page_needs_nothing_else) {
  const auto page = page_of(random_trace(2, 500));
  for (const char* word : {"http:", "https:", "src=", "@import", "<script", "<link", "<img"})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  EXPECT_EQ(number_of("<svg viewBox", page), number_of("<title id=", page));
  EXPECT_EQ(number_of("role=\"img\"", page), number_of("<desc id=", page));
  EXPECT_GE(number_of("role=\"img\"", page), 4U);
}

TEST_F(cli_report, many_caches_are_listed_and_the_slowest_shown) {
  std::string lines;
  for (int i = 1; i <= 20; ++i)
    lines += "cache 1." + page_number(i) + " number-" + page_number(i) + "\n1." + page_number(i) +
             " 0 0x1000 4096 0x1000 4096 " + page_number(1000 * i) + "\n";
  const auto page = page_of(lines);
  EXPECT_EQ(number_of("<section ", page), 8U);
  EXPECT_NE(page.find("<h2>1.20 number-20</h2>"), std::string::npos);
  EXPECT_EQ(page.find("<h2>1.12 number-12</h2>"), std::string::npos);
  EXPECT_NE(page.find("1.12 number-12"), std::string::npos);
}

TEST_F(cli_report, writes_a_whole_file_or_none) {
  const auto trace = write_trace(random_trace(3, 100));
  EXPECT_EQ(run("report " + trace).out, path_ + ".html\n");
  const auto page = contents_of(path_ + ".html");
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_EQ(files(), 2U);
  std::ofstream(path_, std::ios::app) << "1.1 0 0x1000 4096\n";
  expect_refused("report " + trace, path_ + ":103: ");
  EXPECT_EQ(contents_of(path_ + ".html"), page) << "the earlier page";
  EXPECT_EQ(files(), 2U);
  write_trace(random_trace(3, 100));
  EXPECT_EQ(run("report " + trace + " -o /nonexistent/page").status, 1);
  EXPECT_EQ(run("report " + trace + " -o /dev/full").status, 1);
  EXPECT_EQ(run("report " + trace + " -o - >/dev/full").status, 1);
  EXPECT_EQ(files(), 2U);
}

TEST_F(cli_report, trace_is_never_replaced_by_its_page) {
  const auto trace = write_trace(random_trace(3, 100));
  const auto before = contents_of(path_);
  fs::create_hard_link(path_, path_ + ".hard");
  fs::create_symlink(path_, path_ + ".soft");
  fs::create_symlink(path_, path_ + ".html");
  const auto own = "'" + path_;
  for (const auto& output : {" -o " + own + "'", " -o " + own + ".hard'", " -o " + own + ".soft'", std::string()})
    expect_refused("report " + trace + output, "the trace itself cannot be the page");
  expect_refused("report " + own + ".soft' -o " + trace, "the trace itself");
  expect_refused("report /dev/stdin -o " + trace + " <" + trace, "the trace itself");
  EXPECT_EQ(run("report -o - " + trace + " >>" + trace).status, 2);
  EXPECT_EQ(contents_of(path_), before);
  EXPECT_EQ(run("report " + trace + " -o /dev/null").status, 0);
}

TEST_F(cli_report, wrong_usage_is_explained_and_exits_with_2) {
  expect_refused("report", "trace");
  expect_refused("report /nonexistent/trace", "ENOENT");
  expect_refused("report " + write_trace("cache 1.1 mine\n"), "no requests");
  expect_refused("report --budget x " + write_trace(request_line(1, 1, "5").insert(0, "cache 1.1 a\n")), "--budget x");
}

}  // namespace
}  // namespace pinfold::testing::cli_report_test
