// SPDX-License-Identifier: BSD-3-Clause
// The demo's scene with GPU memory, over pinfold's emulation of the CUDA driver.
#include "info/cuda.hpp"
#include "cli/failure.hpp"
#include "demo/stage.hpp"
#include "gpu/cuda_peer.hpp"
#include "gpu/gpu_target.hpp"

#include <pinfold/cuda.hpp>
#include <pinfold/statistics.hpp>

#include <cstdlib>
#include <fmt/format.h>

namespace tool {
namespace {

constexpr std::size_t bytes = std::size_t{1} << 20;
constexpr auto kind = pinfold::cuda_memory_kind::allocation;

struct cuda_stage {
  cuda_peer peer{0};
  gpu device = need(gpu::start(0), "GPU memory is unavailable");
  gpu_target into{device, "device", bytes};
  gpu_cache cache{pinfold::cuda_ipc_importer{}, {.name = "demo"}};
  std::uint64_t checked = 0;

  gpu_message provide() { return need(peer.provide(kind, bytes), "the peer cannot allocate"); }

  // Makes the peer free a buffer and allocate one of the same size.
  gpu_message replace(const gpu_message& old) {
    need(peer.free(old), "the peer cannot free");
    const auto fresh = provide();
    require(fresh.handle.base == old.handle.base, "the peer got the same address again");
    return fresh;
  }

  bool holds(const gpu_message& expected) {
    checked += bytes;
    return need(into.holds(bytes, expected.seed, 0), "cannot read the copied bytes");
  }

  void read_and_check(gpu_reader& how, const gpu_message& wanted) {
    need(into.wipe(bytes), "cannot wipe the reader's buffer");
    need(how.read(whole(wanted), into), "cannot read the peer's memory");
    require(holds(wanted), "the right bytes arrived");
  }

  std::uint64_t take_checked() { return std::exchange(checked, 0); }
};

// The scene shows what a real driver leaves undefined.
void require_emulation() {
  if (!pinfold::cuda_devices()) throw failure("the CUDA driver is unavailable: " + pinfold::cuda_driver_text());
  const auto facts = cuda_facts();
  if (!facts.at("emulated").get<bool>()) throw failure("the library is not the emulation, but " + cuda_line(facts, 0));
}

void choose_library(const std::string& library) {
  constexpr auto variable = "PINFOLD_CUDA_LIBRARY";
  if (!library.empty()) ::setenv(variable, library.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no thread yet
  if (std::getenv(variable) != nullptr) return;                  // NOLINT(concurrency-mt-unsafe): no thread yet
  throw usage_failure(
      "--emulated needs the emulation's path, by --library or PINFOLD_CUDA_LIBRARY; "
      "make demo-emulated builds it");
}

void show_hits(cuda_stage& stage, gpu_reader& reader) {
  constexpr unsigned reads = 100;
  const auto message = stage.provide();
  for (unsigned i = 0; i < reads; ++i) stage.read_and_check(reader, message);
  require(reader.opens() == 1, "the buffer was opened once");
  print_ok("one open",
           fmt::format("1 MiB of the peer's GPU memory read {} times through the cache: opened once, {} hits", reads,
                       stage.cache.statistics().hits),
           stage.take_checked());
  need(stage.cache.flush(), "cannot close unused mappings");
  need(stage.peer.free(message), "the peer cannot free");
}

// Keeps a mapping by the peer's address alone, like a cache that does not compare handles.
void show_stale(cuda_stage& stage) {
  pinfold::cuda_ipc_importer importer;
  const auto old = stage.provide();
  const auto kept = need(importer.open(old.peer, old.handle), "cannot open the peer's memory");
  const auto fresh = stage.replace(old);
  need(stage.into.wipe(bytes), "cannot wipe the reader's buffer");
  need(stage.into.take(kept.data, bytes), "cannot copy");
  require(!stage.holds(fresh) && stage.holds(old), "by the address alone, the old bytes are read");
  need(importer.close(kept.registration), "cannot close the peer's memory");
  print_ok("by address",
           fmt::format("without the cache: the peer freed its buffer, allocated again, got the same address {:#x}, and "
                       "wrote new bytes; a mapping kept for that address reads the OLD bytes, without any error: a "
                       "cache must prevent this (for a real driver, such a read is undefined)",
                       old.handle.base),
           stage.take_checked());
  need(stage.peer.free(fresh), "the peer cannot free");
}

void show_noticed(cuda_stage& stage, gpu_reader& reader) {
  const auto old = stage.provide();
  stage.read_and_check(reader, old);
  const auto before = stage.cache.statistics();
  const auto fresh = stage.replace(old);
  stage.read_and_check(reader, fresh);
  const auto after = stage.cache.statistics();
  require(after.invalid == before.invalid + 1, "the cache detected the new handle");
  require(after.opens == before.opens + 1, "the cache opened the new memory");
  const auto refused = stage.cache.acquire(old.peer, old.handle, old.handle.base, bytes);
  require(!refused && refused.error() == pinfold::errc::stale_handle, "the freed buffer's handle is refused");
  print_ok("by handle",
           fmt::format("the same again, through the cache: the address {:#x} is the same, the handle is not (buffer id "
                       "{}, then {}); the cache noticed (invalid +1), opened the new memory, and the new bytes "
                       "arrived; the old handle is refused (stale_handle)",
                       old.handle.base, old.handle.buffer_id, fresh.handle.buffer_id),
           stage.take_checked());
}

void show_end(cuda_stage& stage) {
  need(stage.cache.flush(), "cannot close everything");
  const auto end = stage.cache.statistics();
  require(end.opens == end.closes && stage.cache.backend().held() == 0, "every open was closed");
  print_ok("clean end", fmt::format("{} opens, {} closes, nothing held", end.opens, end.closes), 0);
}

}  // namespace

void show_cuda(const std::string& library) {
  choose_library(library);
  cuda_stage stage;
  require_emulation();
  fmt::print("GPU memory of another process, EMULATED: no GPU is involved\n\n");
  fmt::print("  driver    {}\n  exporter  process {}\n  importer  this process\n\n", cuda_line(cuda_facts(), 0),
             stage.peer.pid());
  cached_reader<gpu_message, gpu_target, gpu_cache> reader(stage.cache);
  show_hits(stage, reader);
  show_stale(stage);
  show_noticed(stage, reader);
  show_end(stage);
  fmt::print("\nAll checks passed.\n");
}

}  // namespace tool
