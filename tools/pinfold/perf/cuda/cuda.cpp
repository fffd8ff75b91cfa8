// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf import --cuda`: the cost of opening a peer's GPU memory, with the cache and without.
#include "perf/cuda/cuda.hpp"

#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "info/cuda.hpp"
#include "info/host.hpp"

#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <utility>

namespace tool {

using pinfold::cuda_memory_kind;

namespace {

constexpr std::array cuda_cases{&cuda_copy_case, &cuda_open_case, &cuda_identity_case, &weight_sync_case};

void print_heading(const import_options& options, const json& host) {
  const auto& cuda = options.cuda;
  fmt::print("pinfold perf import, {}: GPU memory of another process\n", options.case_name);
  fmt::print("cache: {}\n", cache_line(options.cache));
  fmt::print("cuda:  {}\n", cuda_line(host.at("cuda"), static_cast<std::size_t>(cuda.device)));
  fmt::print("host:  {}\n\n", host_line(host));
}

// Emulated times must not be taken for a GPU's.
std::vector<std::string> notes_on(bool emulated) {
  if (!emulated) return {"The driver's own times: nothing is emulated, nothing is delayed."};
  const char* const delays = std::getenv("EMULATED_CUDA_DELAY");  // NOLINT(concurrency-mt-unsafe): no thread sets it
  if (delays == nullptr)
    return {
        "EMULATED: no GPU was involved, and nothing was delayed. The CPU makes the copies; an open costs as much as "
        "mapping a file."};
  return {
      fmt::format("EMULATED: no GPU was involved. The CPU makes the copies; calls of the driver are delayed, in "
                  "microseconds, by EMULATED_CUDA_DELAY={}",
                  delays)};
}

}  // namespace

const char* name_of(cuda_memory_kind kind) noexcept {
  return kind == cuda_memory_kind::segments ? "segments" : "allocations";
}

cuda_memory_kind cuda_run::kind() const {
  return options.cuda.memory == "segments" ? cuda_memory_kind::segments : cuda_memory_kind::allocation;
}

pinfold::result<std::vector<gpu_message>> cuda_run::provide(cuda_memory_kind kind, std::size_t count,
                                                            std::size_t bytes) const {
  std::vector<gpu_message> messages;
  while (messages.size() < count) {
    const auto made = peer.provide(kind, bytes);
    if (!made) {
      peer.take_back(messages);
      return tl::unexpected(made.error());
    }
    messages.push_back(*made);
  }
  return messages;
}

json cuda_run::row(const char* subject, std::size_t size, cuda_memory_kind kind) const {
  return {{"case", options.case_name},
          {"subject", subject},
          {"emulated", emulated},
          {"memory", name_of(kind)},
          {"to", options.cuda.to},
          {"size", size},
          {"retain", options.cache.retain},
          {"max_bytes", options.cache.max_bytes},
          {"max_count", options.cache.max_count},
          {"when_full", name_of(options.cache.full)}};
}

int measure_cuda(import_options& options, const std::string& sizes, bool as_json) {
  const auto& chosen = case_named(cuda_cases, options.case_name);
  options.sizes = parse_sizes(sizes.empty() ? chosen.default_sizes : sizes);
  auto host = host_facts();
  cuda_peer peer(options.cuda.device);
  auto device = need(gpu::start(options.cuda.device), "GPU memory is unavailable");
  host["cuda"] = cuda_facts();
  if (!as_json) print_heading(options, host);
  const auto emulated = host.at("cuda").at("emulated").get<bool>();
  show_at_interrupt({.host = host, .as_json = as_json, .columns = chosen.columns()});
  return show_results(chosen.run({options, peer, device, emulated}), notes_on(emulated));
}

}  // namespace tool
