// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf io`: random reads and writes of a real file, with buffers that are registered in different ways.
#include "cli/progress.hpp"
#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/host.hpp"
#include "perf/local/io_rounds.hpp"
#include "perf/local/local.hpp"

#include <fmt/format.h>
#include <map>
#include <memory>
#include <string_view>

namespace tool {
namespace {

struct io_options : measuring {
  std::vector<std::size_t> sizes;
  std::size_t file_size = 0;
  unsigned depth = 16;
  std::size_t buffers = 64;
  double write_share = 0.5;
  std::optional<unsigned> slots;
  std::optional<pinfold::page_kind> pages;
  std::string directory;
  pinfold::cache_options cache;
};

struct io_command {
  io_options options;
  std::string sizes = "4K,64K";
  std::string file_size = "256M";
  bool as_json = false;
};

// One size's file, and the common state of all its measurements.
struct stage {
  const io_options& options;
  uring& ring;
  block_file& file;
  std::size_t size;
  bool direct;
};

struct io_run {
  latency each;
  double seconds;
};

struct measured {
  std::vector<io_run> runs;
  std::uint64_t errors = 0;
  std::uint64_t bytes_checked = 0;
  std::optional<pinfold::error> failed;
};

void add(measured& results, const char* subject, io_tally done) {
  if (done.first && results.errors == 0) report_error(subject, *done.first);
  results.errors += done.errors;
  results.bytes_checked += done.bytes_checked;
  const auto seconds = done.seconds;
  results.runs.push_back({summarise(std::move(done.samples)), seconds});
}

// The first round is a warm-up that is checked and not timed; it also shows whether the buffers can be registered.
void measure_once(const stage& on, const char* subject, std::uint64_t seed, measured& results) {
  const auto& options = on.options;
  const auto kind = options.pages.value_or(pinfold::page_kind::plain);
  const auto how = make_io_subject(subject, on.ring, {options.buffers, on.size, kind, options.cache});
  if (!how) {
    results.failed = how.error();
    return;
  }
  io_rounds rounds(on.ring, on.file, **how, {options.depth, options.write_share, options.buffers}, seed);
  if (!rounds.play()) {
    results.failed = rounds.take().first;
    return;
  }
  auto warm = rounds.take();
  bool going = true;
  for (stint rest(options); going && rest.goes_on();) going = rounds.play();
  auto done = rounds.take();
  done.errors += warm.errors;
  done.bytes_checked += warm.bytes_checked;
  if (warm.first) done.first = warm.first;
  add(results, subject, std::move(done));
}

json row_of(const stage& on, const char* subject, const measured& results) {
  const auto& options = on.options;
  json row{{"case", "io"},
           {"subject", subject},
           {"size", on.size},
           {"pages", pages_name(options.pages.value_or(pinfold::page_kind::plain))},
           {"direct", on.direct},
           {"depth", options.depth},
           {"buffers", options.buffers},
           {"slots", options.slots.value_or(default_slots)},
           {"write_share", options.write_share},
           {"file_size", options.file_size}};
  if (results.failed) return add_failure(row, *results.failed), row;
  const auto median = median_by(results.runs, [](const io_run& one) { return one.each.average; });
  add_latency(row, median.each);
  const auto ios = static_cast<double>(median.each.iterations);
  row["iops"] = rounded(ios / median.seconds);
  row["gb_per_s"] = rounded(ios * static_cast<double>(on.size) / median.seconds * 1e-9);
  row["bytes_checked"] = results.bytes_checked;
  row["errors"] = results.errors;
  return row;
}

// Subjects take turns, so that other load on the machine affects all of them, and make the same I/Os.
void measure_size(const stage& on, json& rows, progress_bar& progress) {
  std::map<std::string_view, measured> results;
  for (unsigned repeat = 0; repeat < on.options.repeats; ++repeat) {
    for (const char* subject : io_subjects) {
      auto& own = results[subject];
      if (!own.failed) measure_once(on, subject, repeat, own);
      progress.step();
    }
  }
  for (const char* subject : io_subjects) rows.push_back(row_of(on, subject, results[subject]));
  keep_rows(rows);
}

json measure_all(const io_options& options, const scratch_file& file) {
  const auto ring = need_uring(options.depth, options.slots.value_or(default_slots));
  auto rows = json::array();
  progress_bar progress(options.sizes.size() * options.repeats * io_subjects.size());
  for (const auto size : options.sizes) {
    block_file blocks(file, *ring, size, options.file_size);
    measure_size({options, *ring, blocks, size, file.direct()}, rows, progress);
  }
  add_gains(rows, "iops", figure_of::rate, [](const json& base, const json& row) {
    return base.at("subject") == "per-io" && same("size", base, row);
  });
  return rows;
}

// Each I/O of a round needs a block and a buffer of its own.
void check(const io_options& options) {
  for (const auto size : options.sizes) {
    check_block("--sizes", size, largest_io);
    if (options.file_size / size >= options.depth) continue;
    throw usage_failure(fmt::format("--file-size {}: too small for {} concurrent I/Os of {}",
                                    size_text(options.file_size), options.depth, size_text(size)));
  }
  if (options.buffers < options.depth)
    throw usage_failure(
        fmt::format("--buffers {}: {} concurrent I/Os need at least as many buffers", options.buffers, options.depth));
}

std::vector<column> columns() {
  return with_errors({size("#bytes", "size"), words("subject", "subject"), count("#I/Os", "iterations"),
                      microseconds("p50[us]", "p50_ns", 2), microseconds("p99[us]", "p99_ns", 2),
                      microseconds("average[us]", "ns_per_op", 2), count("IOPS", "iops"),
                      number("GB/s", "gb_per_s", 1, 2), number("x per-io", "gain", 1, 2)});
}

void print_heading(const io_options& options, const scratch_file& file, const json& host) {
  fmt::print("pinfold perf io: io_uring, {} I/Os at a time, {} % writes\n", options.depth, 100 * options.write_share);
  fmt::print("file:  {}, in {}, {}\n", size_text(options.file_size), options.directory, direct_text(file.direct()));
  fmt::print("host:  {}\n", host_line(host));
  fmt::print("limit: {}\n\n", memlock_line(host));
}

int measure(io_command& command) {
  auto& options = command.options;
  const auto host = host_facts();
  options.cache = options_of_environment();
  options.sizes = parse_sizes(command.sizes);
  options.file_size = parse_one_size(command.file_size);
  if (options.directory.empty()) options.directory = scratch_directory();
  if (!options.slots) options.slots = slots_for(options.buffers);
  check(options);
  check_memory(options.buffers, options.sizes, host);
  const scratch_file file(options.directory, options.file_size);
  if (!command.as_json) print_heading(options, file, host);
  show_at_interrupt({.host = host, .as_json = command.as_json, .columns = columns()});
  return show_results(measure_all(options, file));
}

void add_options(CLI::App& command, io_command& into) {
  auto& options = into.options;
  command.add_option("--sizes", into.sizes, "bytes of each I/O, e.g. 4K,64K")->size()->capture_default_str();
  command.add_option("--file-size", into.file_size, "bytes of the file")->size()->capture_default_str();
  add_directory(command, options.directory);
  command.add_number("--depth", options.depth, "concurrent I/Os", 1, 4096);
  command.add_number("--buffers", options.buffers, "number of buffers, used in turn", 1, 16384);
  command.add_number("--write-share", options.write_share, "share of writes, from 0 to 1", 0.0, 1.0);
  add_pages(command, options.pages);
  add_slots(command, options.slots);
  options.add_to(command, "rounds of --depth I/Os");
  command.add_flag("--json", into.as_json, "print one JSON object");
}

}  // namespace

void add_perf_io(CLI::App& perf, action& chosen) {
  auto command = std::make_shared<io_command>();
  auto* io = perf.add_subcommand("io", "Random reads and writes of a real file, with buffers registered in four ways");
  add_options(*io, *command);
  io->callback([command, &chosen] { chosen = [command] { return measure(*command); }; });
}

}  // namespace tool
