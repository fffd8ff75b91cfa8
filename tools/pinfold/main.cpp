// SPDX-License-Identifier: BSD-3-Clause
#include "cli/output.hpp"
#include "commands.hpp"
#include "run/loadable.hpp"

#include <pinfold/version.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr auto examples = R"(Examples:
  pinfold info                      what works on this machine
  pinfold demo                      what the cache does, with real processes
  pinfold perf hit --seconds 100ms  what a hit costs
  pinfold top                       what the caches of running processes do
  pinfold run --for ucx -- program  an unmodified program over pinfold
`pinfold help perf hit` is the same as `pinfold perf hit --help`.)";

// Turns `help perf hit` into `perf hit --help`.
std::vector<char*> without_help_word(int argc, char** argv) {
  static std::string option = "--help";
  std::vector<char*> words(argv, argv + argc);  // NOLINT(*-pointer-arithmetic): what main() gets
  if (words.size() < 2 || std::string_view(words[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.push_back(option.data());
  return words;
}

int run_words(std::vector<char*> words) {
  const auto argc = static_cast<int>(words.size());
  words.push_back(nullptr);
  char** const argv = words.data();
  tool::answer_driver_facts(argc, argv);
  tool::answer_whether_loadable(argc, argv);
  tool::CLI::App app("pinfold: registers memory once, reuses registrations safely, and never returns a stale one.",
                     "pinfold");
  app.set_version_flag("-V,--version", "pinfold " PINFOLD_VERSION);
  app.footer(examples);
  app.require_subcommand(0, 1);  // with 1, 1 a misspelt subcommand would be reported as missing
  tool::action chosen;
  tool::add_info(app, chosen);
  tool::add_demo(app, chosen);
  tool::add_run(app, chosen);
  tool::add_dump(app, chosen);
  tool::add_top(app, chosen);
  tool::add_watch(app, chosen);
  tool::add_metrics(app, chosen);
  tool::add_trace(app, chosen);
  tool::add_replay(app, chosen);
  tool::add_report(app, chosen);
  tool::add_monitord(app, chosen);
  auto* perf = app.add_subcommand("perf", "Measures what the cache gains on this machine");
  perf->require_subcommand(0, 1);
  tool::add_perf_import(*perf, chosen);
  tool::add_perf_register(*perf, chosen);
  tool::add_perf_io(*perf, chosen);
  tool::add_perf_speed(*perf, chosen);
  tool::add_perf_monitor(*perf, chosen);
  tool::add_perf_startup(*perf, chosen);
  if (const auto ended = app.parse(argc, argv)) return *ended == 0 ? tool::success : tool::wrong_usage;
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  return tool::run_to_exit([&] { return run_words(without_help_word(argc, argv)); });
}
