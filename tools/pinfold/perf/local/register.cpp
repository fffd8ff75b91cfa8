// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf register`: the cost of registering this process's own memory with io_uring.
#include "perf/local/register.hpp"

#include "cli/failure.hpp"
#include "cli/scratch_file.hpp"
#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/host.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <memory>

namespace tool {
namespace {

constexpr std::array register_cases{&size_case, &batch_case, &pipeline_case};

struct register_command {
  register_options options;
  std::string sizes;
  std::string chunk = "512K";
  bool as_json = false;
};

// Returns how many buffers of each size exist at a time.
std::size_t buffers_of(const register_options& options) {
  if (options.case_name == "batch") return 2 * options.count;  // each has a gap beside it
  return options.case_name == "size" ? 3 : 1;                  // one for each kind of pages
}

void check_blocks(const register_options& options) {
  if (options.case_name == "size") return;
  for (const auto size : options.sizes) check_block("--sizes", size);
  check_block("--chunk", options.chunk, largest_io);
}

// Returns how many registrations exist at a time.
std::size_t registrations_of(const register_options& options) {
  if (options.case_name == "batch") return options.count;
  if (options.case_name == "size" || options.chunk == 0) return 1;
  return std::ranges::max(options.sizes) / options.chunk + 1;
}

std::string heading(const register_options& options, const json& host) {
  return fmt::format("pinfold perf register, {}: io_uring\nhost:  {}\nlimit: {}\n\n", options.case_name,
                     host_line(host), memlock_line(host));
}

int measure(register_command& command) {
  auto& options = command.options;
  const auto& chosen = case_named(register_cases, options.case_name);
  const auto host = host_facts();
  options.cache = options_of_environment();
  options.sizes = parse_sizes(command.sizes.empty() ? chosen.default_sizes : command.sizes);
  options.chunk = parse_one_size(command.chunk);
  if (options.directory.empty()) options.directory = scratch_directory();
  check_memory(buffers_of(options), options.sizes, host);
  check_blocks(options);
  if (!options.slots) options.slots = slots_for(registrations_of(options));
  const auto ring = need_uring(options.queue_depth, options.slots.value_or(default_slots));
  std::vector<std::string> notes;
  show_at_interrupt({.host = host,
                     .as_json = command.as_json,
                     .heading = [&](const json&) { return heading(options, host); },
                     .columns = chosen.columns()});
  const auto rows = chosen.run({options, *ring, notes});
  return show_results(rows, notes);
}

void add_what(CLI::App& command, register_command& into) {
  auto& options = into.options;
  command
      .add_option(
          "--case", options.case_name,
          "what to measure: cost by size and kind of pages, many buffers at once, or one long buffer written to a file")
      ->check(CLI::IsMember({"size", "batch", "pipeline"}))
      ->capture_default_str();
  command.add_option("--sizes", into.sizes, "buffer sizes, e.g. 4K,64K,1M")->size();
  add_pages(command, options.pages);
  add_slots(command, options.slots);
  command.add_number("--count", options.count, "buffers, for batch", std::size_t{1}, std::size_t{1'000'000});
  command.add_flag("--json", into.as_json, "print one JSON object");
}

void add_how(CLI::App& command, register_command& into) {
  auto& options = into.options;
  options.add_to(command, "registrations, for size,");
  command.add_number("--workers", options.workers, "threads that register, for batch", 1, 256);
  command
      .add_number("--delay-ms", options.delay_ms, "duration of a call of the sleeping registrar, for batch", 0, 1000)
      ->duration(std::chrono::milliseconds(1));
  command.add_option("--chunk", into.chunk, "bytes of a chunk, for pipeline")->size()->capture_default_str();
  command.add_number("--depth", options.depth, "chunks registered ahead, for pipeline", 1, 4096);
  command.add_number("--queue-depth", options.queue_depth, "concurrent writes, for pipeline", 1, 4096);
  add_directory(command, options.directory);
}

}  // namespace

json register_run::row(std::string_view subject, std::size_t size) const {
  return {{"case", options.case_name},
          {"subject", subject},
          {"registrar", "io_uring"},
          {"slots", options.slots.value_or(default_slots)},
          {"size", size}};
}

void add_perf_register(CLI::App& perf, action& chosen) {
  auto command = std::make_shared<register_command>();
  auto* own = perf.add_subcommand("register", "Registering this process's memory: by size, many at once, in chunks");
  add_what(*own, *command);
  add_how(*own, *command);
  own->callback([command, &chosen] { chosen = [command] { return measure(*command); }; });
}

}  // namespace tool
