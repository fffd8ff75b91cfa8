// SPDX-License-Identifier: BSD-3-Clause
// The whole of `pinfold perf rma`, once the ranks have met.
#include "cli/failure.hpp"
#include "cli/progress.hpp"
#include "cli/sizes.hpp"
#include "info/host.hpp"
#include "perf/perf.hpp"
#include "perf/rma/address.hpp"
#include "perf/rma/interrupts.hpp"
#include "perf/rma/options.hpp"
#include "perf/rma/peers.hpp"
#include "perf/rma/rows.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <set>
#include <unistd.h>

namespace tool {
namespace {

// Checks that all ranks have the same options, since they would wait for each other otherwise. Returns the number of
// their networks.
std::size_t agree(rma_peers& peers, const rma_options& options) {
  const auto own = options.agreement();
  const auto all = peers.all_gather(this_network() + "\n" + own, options.time_limit(), [] {});
  std::set<std::string> networks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto line = all[rank].find('\n');
    networks.insert(all[rank].substr(0, line));
    if (all[rank].substr(line + 1) != own)
      throw usage_failure(fmt::format("all ranks need the same options: rank {} has {}; rank {} has {}", peers.rank(),
                                      own, rank, all[rank].substr(line + 1)));
  }
  return networks.size();
}

bool goes_over_ip(std::string_view provider) {
  constexpr std::array<std::string_view, 4> families{"tcp", "net", "sockets", "udp"};
  return std::ranges::any_of(families, [&](auto family) { return provider.starts_with(family); });
}

std::string address_for(const rma_peers& peers, const rma_options& options, std::size_t networks) {
  if (!options.address.empty()) return own_address(options.address);
  if (!goes_over_ip(options.provider)) return "";
  return networks == 1 ? "127.0.0.1" : peers.address();
}

// Introduces the next rank, and the one before this rank.
void introduce(fabric_end& end, rma_peers& peers, const rma_options& options) {
  const auto all = peers.all_gather(end.name(), options.time_limit(), [&] { end.progress(); });
  const auto next = (peers.rank() + 1) % all.size();
  const auto before = (peers.rank() + all.size() - 1) % all.size();
  end.meet(all[next]);
  if (before != next) end.know(all[before]);
}

void check_sizes(const fabric_end& end, const rma_options& options) {
  for (const auto size : options.sizes)
    if (size > end.largest())
      throw usage_failure(fmt::format("--sizes {}: {} moves at most {} at once", size_text(size), options.provider,
                                      size_text(end.largest())));
}

struct rma_row_plan {
  std::string operation, subject;
  rma_tally tally;
};

// The measurements of one size. Subjects take turns, so that other load on the machine affects all of them.
class rma_size {
 public:
  rma_size(fabric_end& end, rma_peers& peers, const rma_options& options, std::size_t size)
      : peers_(peers),
        options_(options),
        window_(end, {options.buffers, size}, options.cache),
        rounds_(end, peers, options, window_) {
    for (const auto& name : options.subjects)
      subjects_.push_back(make_rma_subject(name, end, {options.buffers, size}, options.cache));
    for (const auto& operation : options.operations)
      for (const auto& name : options.subjects) rows_.push_back({operation, name, {}});
  }

  void play(progress_bar* progress) {
    const auto buffers = options_.buffers;
    play_all(std::min(buffers, options_.iterations), true);
    for (auto left = options_.iterations; left > 0; left -= std::min(buffers, left)) {
      play_all(std::min(buffers, left), false);
      if (progress != nullptr) progress->step();
    }
  }

  [[nodiscard]] const std::vector<rma_row_plan>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::string monitors() const {
    for (const auto& one : subjects_)
      if (!one->monitors().empty()) return one->monitors();
    return {};
  }

 private:
  void play_all(std::size_t count, bool warm_up) {
    const bool spoil = options_.spoil == "byte" && warm_up && peers_.rank() + 1 == peers_.ranks();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      auto& row = rows_[i];
      const rma_round round{row.operation == "put", *subjects_[i % subjects_.size()], row.subject, count, spoil};
      row.tally.add(round, rounds_.play(round), warm_up);
    }
  }

  rma_peers& peers_;
  const rma_options& options_;
  rma_window window_;
  rma_rounds rounds_;
  std::vector<std::unique_ptr<rma_subject>> subjects_;
  std::vector<rma_row_plan> rows_;
};

// Prints why this rank ends while it still can: closing its open objects may be slow, and is limited to 10 s.
[[noreturn]] void end_early(fabric_end& end, rma_peers& peers, const std::exception& problem) {
  constexpr unsigned closing_s = 10;
  end_if_interrupted();
  fmt::print(stderr, "pinfold: rank {}: {}\n", peers.rank(), problem.what());
  peers.give_up(problem.what());
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(closing_s);
  end.stop();  // before the memory goes that the provider may still use
  throw failure("");
}

json gather(rma_peers& peers, const rma_options& options, fabric_end& end, std::size_t size,
            const std::vector<rma_row_plan>& own) {
  auto tallies = json::array();
  for (const auto& row : own) tallies.push_back(as_json(row.tally));
  const auto all = peers.all_gather(tallies.dump(), options.time_limit(), [&] { end.progress(); });
  auto rows = json::array();
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::vector<json> of_row;
    for (const auto& one : all) of_row.push_back(json::parse(one).at(i));
    rows.push_back(rma_row({{"case", "rma"},
                            {"operation", own[i].operation},
                            {"subject", own[i].subject},
                            {"provider", options.provider},
                            {"size", size},
                            {"ranks", peers.ranks()},
                            {"buffers", options.buffers},
                            {"depth", options.depth}},
                           of_row));
  }
  return rows;
}

json measure_size(fabric_end& end, rma_peers& peers, const rma_options& options, std::size_t size,
                  std::string& monitors, progress_bar* progress) {
  rma_size one(end, peers, options, size);
  try {
    one.play(progress);
    if (monitors.empty()) monitors = one.monitors();
    return gather(peers, options, end, size, one.rows());
  } catch (const std::exception& problem) {
    end_early(end, peers, problem);
  }
}

void print_heading(const rma_peers& peers, const rma_options& options, std::size_t networks, const json& host) {
  fmt::print("pinfold perf rma: {}, {} {} on {} {}, each to the next\n", options.provider, peers.ranks(),
             peers.ranks() == 1 ? "rank" : "ranks", networks, networks == 1 ? "host" : "hosts");
  fmt::print("each:  {} buffers, {} transfers at a time; rates are the average of the ranks'\n", options.buffers,
             options.depth);
  fmt::print("host:  {}\n\n", host_line(host));
  std::fflush(stdout);
}

}  // namespace

int run_rma(rma_peers& peers, const rma_options& options) {
  const auto networks = agree(peers, options);
  fabric_end end(options.provider, address_for(peers, options, networks));
  check_sizes(end, options);
  limit_fabric_calls(options.time_limit(), peers.rank());
  introduce(end, peers, options);
  const auto host = host_facts();
  if (peers.reports() && !options.as_json) print_heading(peers, options, networks, host);
  if (peers.reports())
    present_rows({.host = host, .as_json = options.as_json, .columns = rma_columns(), .complete = add_rma_gains});
  std::optional<progress_bar> progress;
  if (peers.reports()) progress.emplace(options.sizes.size() * ((options.iterations - 1) / options.buffers + 1));
  auto rows = json::array();
  std::string monitors;
  for (const auto size : options.sizes) {
    auto* const shown = progress ? &*progress : nullptr;
    for (auto& row : measure_size(end, peers, options, size, monitors, shown)) rows.push_back(std::move(row));
    keep_rows(rows);
  }
  progress.reset();
  if (!peers.reports()) return total_errors(rows) == 0 ? 0 : 1;
  std::vector<std::string> notes{rma_summary(rows)};
  if (!monitors.empty()) notes.push_back("pinfold's cache detects unmapped memory by: " + monitors);
  return show_results(rows, notes);
}

}  // namespace tool
