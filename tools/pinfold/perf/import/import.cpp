// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf import`: the cost of opening a peer's memory, with the cache and without.
#include "perf/import/import.hpp"

#include "cli/failure.hpp"
#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/host.hpp"

#include "bench/worker_group.hpp"

#include <array>
#include <fmt/format.h>
#include <memory>
#include <string_view>

namespace tool {
namespace {

constexpr std::array import_cases{&copy_case, &parallel_opens_case, &hit_during_open_case};

struct import_command {
  import_options options;
  cache_flags flags;
  std::string sizes;
  bool as_json = false;
};

std::size_t messages_of(const import_options& options) {
  if (options.case_name == "parallel-opens") return options.opens;
  return options.case_name == "copy" ? options.peers * options.buffers : 2;
}

void check_pinning(const import_options& options) {
  if (options.pin_peer == "none") return;
  if (options.case_name == "copy" && options.threads.value_or(1) == 1) return;
  throw usage_failure("--pin-peer needs the copy case with one thread");
}

// Without retain there are no hits: each request would open.
void check_retain(const import_options& options) {
  if (options.case_name != "hit-during-open" || options.cache.retain) return;
  throw usage_failure("hit-during-open needs retain");
}

bool is_cuda_only(std::string_view name) { return name == "open" || name == "identity" || name == "weight-sync"; }

// Pins this process if requested, and returns the CPU for the peers.
std::optional<std::size_t> pin(const std::string& where) {
  if (where == "none") return std::nullopt;
  const auto cpus = bench::usable_cpus();
  if (where == "other" && cpus.size() == 1) throw usage_failure("--pin-peer other: only one CPU may be used here");
  if (cpus.empty() || !bench::stay_on(cpus.front())) throw failure("cannot pin this process to a CPU");
  return where == "same" ? cpus[0] : cpus[1];
}

std::string budget_text(const pinfold::cache_options& cache) {
  std::string text;
  if (cache.max_bytes != pinfold::unlimited) text += fmt::format("at most {}, ", size_text(cache.max_bytes));
  if (cache.max_count != pinfold::unlimited) text += fmt::format("at most {} registrations, ", cache.max_count);
  return text.empty() ? "no budget" : text + "when full " + name_of(cache.full);
}

void print_heading(const import_options& options, const json& host) {
  fmt::print("pinfold perf import, {}: memfd via {}, {} peers\n", options.case_name, name_of(options.via),
             options.peers);
  fmt::print("cache: {}\n", cache_line(options.cache));
  fmt::print("host:  {}\n\n", host_line(host));
}

int measure(import_command& command) {
  auto& options = command.options;
  options.cache = command.flags.resolve();
  if (options.cuda.chosen) return measure_cuda(options, command.sizes, command.as_json);
  if (is_cuda_only(options.case_name)) throw usage_failure(options.case_name + " is a case of --cuda");
  const auto& chosen = case_named(import_cases, options.case_name);
  const auto host = host_facts();
  options.sizes = parse_sizes(command.sizes.empty() ? chosen.default_sizes : command.sizes);
  check_memory(messages_of(options), options.sizes, host);  // peers fill all buffers with real bytes
  check_pinning(options);
  check_retain(options);
  auto peers =
      start_peers(options.peers, {.serve = options.via == pinfold::memfd_via::scm, .cpu = pin(options.pin_peer)});
  if (!command.as_json) print_heading(options, host);
  show_at_interrupt({.host = host, .as_json = command.as_json, .columns = chosen.columns()});
  return show_results(chosen.run({options, peers}));
}

void add_what(CLI::App& command, import_command& into) {
  auto& options = into.options;
  command
      .add_option("--case", options.case_name,
                  "what to measure: messages, many slow opens on several threads, or hits while another thread opens; "
                  "with --cuda: messages, opens and closes alone, or the tensors of one step of weight synchronization")
      ->check(CLI::IsMember({"copy", "parallel-opens", "hit-during-open", "open", "identity", "weight-sync"}))
      ->capture_default_str();
  command.add_option("--sizes", into.sizes, "message sizes, e.g. 4K,64K,1M")->size();
  add_via(command, options.via, {"pidfd", "scm"});
  command.add_number("--peers", options.peers, "exporting processes", 1, 64);
  command.add_number("--buffers", options.buffers, "buffers of each peer, for copy", 1, 4096);
}

void add_how(CLI::App& command, import_command& into) {
  auto& options = into.options;
  command.add_option("--threads", options.threads, "importing threads [copy: 1, parallel-opens: 4]")
      ->check(CLI::Range(1, 256));
  options.add_to(command, "operations [hit-during-open: 100000]");
  command.add_number("--opens", options.opens, "handles, for parallel-opens", 1, 4096);
  command.add_option("--open-ms", options.open_ms, "duration of each open [parallel-opens: 50, hit-during-open: 300]")
      ->check(CLI::Range(0, 60'000))
      ->duration(std::chrono::milliseconds(1));
  command.add_option("--pin-peer", options.pin_peer, "keep the peers on the same CPU as this process, or on another")
      ->check(CLI::IsMember({"none", "same", "other"}))
      ->capture_default_str();
  command.add_flag("--json", into.as_json, "print one JSON object");
}

void add_cuda(CLI::App& command, cuda_options& cuda) {
  auto* chosen = command.add_flag("--cuda", cuda.chosen, "GPU memory of one peer, by CUDA IPC");
  for (const char* other : {"--via", "--peers", "--threads", "--opens", "--open-ms", "--pin-peer"})
    chosen->excludes(command.get_option(other));
  const auto add = [&](const char* name, auto& into, const char* what) {
    return command.add_option(name, into, what)->needs(chosen)->capture_default_str();
  };
  add("--device", cuda.device, "number of the device")->check(CLI::Range(0, 63));
  add("--to", cuda.to, "destination of the messages")->check(CLI::IsMember({"device", "host"}));
  add("--memory", cuda.memory, "how the peer allocates: by cuMemAlloc, or mapped [allocations; open: both]")
      ->check(CLI::IsMember({"allocations", "segments"}));
  add("--held", cuda.held, "number of other open allocations, for open")->delimiter(',')->check(CLI::Range(0, 100'000));
  add("--allocations", cuda.allocations, "distinct allocations, for weight-sync")->check(CLI::Range(1, 1'000'000));
  add("--requests", cuda.requests, "tensors, for weight-sync")->check(CLI::Range(1, 100'000'000));
}

}  // namespace

std::string cache_line(const pinfold::cache_options& cache) {
  return fmt::format("{}, {}", cache.retain ? "retain" : "no retain", budget_text(cache));
}

std::vector<message> import_run::provide(std::size_t count, std::size_t bytes) const {
  std::vector<message> messages;
  for (std::size_t i = 0; i < count; ++i) {
    auto& peer = peers[i % peers.size()];
    messages.push_back(need(peer.provide(static_cast<std::uint32_t>(i), bytes), "a peer cannot create a buffer"));
  }
  return messages;
}

void import_run::take_back(std::size_t count) const {
  for (std::size_t i = 0; i < count; ++i) {
    need(peers[i % peers.size()].free(static_cast<std::uint32_t>(i)), "a peer cannot free a buffer");
  }
}

json import_run::row(const char* subject, std::size_t size, unsigned threads) const {
  return {{"case", options.case_name},
          {"subject", subject},
          {"via", name_of(options.via)},
          {"size", size},
          {"threads", threads},
          {"peers", options.peers},
          {"retain", options.cache.retain},
          {"max_bytes", options.cache.max_bytes},
          {"max_count", options.cache.max_count},
          {"when_full", name_of(options.cache.full)},
          {"pin_peer", options.pin_peer}};
}

void add_perf_import(CLI::App& perf, action& chosen) {
  auto command = std::make_shared<import_command>();
  auto* import = perf.add_subcommand("import", "Opening peers' memory, with and without the cache");
  add_what(*import, *command);
  add_how(*import, *command);
  add_cuda(*import, command->options.cuda);
  command->flags.add_to(*import);
  import->callback([command, &chosen] { chosen = [command] { return measure(*command); }; });
}

}  // namespace tool
