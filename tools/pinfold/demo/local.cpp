// SPDX-License-Identifier: BSD-3-Clause
// The demo's third part: registrations of this process's own memory. Real buffers, real bytes, a real kernel.
#include "cli/failure.hpp"
#include "cli/report.hpp"
#include "demo/stage.hpp"
#include "perf/local/io_subject.hpp"
#include "perf/local/paged_memory.hpp"
#include "perf/local/uring.hpp"
#include "perf/measure.hpp"
#include "perf/remappable_memory.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace tool {
namespace {

constexpr std::size_t buffer_bytes = 1024 * kib;
constexpr std::size_t part_bytes = 64 * kib;

// The file that the buffers are written to. It is in memory, as this part is not about disks.
class file_in_memory {
 public:
  file_in_memory() : descriptor_(::memfd_create("pinfold-demo", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw failure("cannot create a file in memory");
  }
  file_in_memory(const file_in_memory&) = delete;
  file_in_memory& operator=(const file_in_memory&) = delete;
  ~file_in_memory() { ::close(descriptor_); }

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  /// Returns whether the file begins with the content of `seed`, as ordinary reads see it.
  [[nodiscard]] bool begins_with(std::uint64_t seed, std::size_t bytes) const {
    std::vector<std::byte> seen(bytes);
    const auto got = ::pread(descriptor_, seen.data(), bytes, 0);
    return got == static_cast<ssize_t>(bytes) && holds(seen, seed);
  }

 private:
  int descriptor_;
};

struct local_stage {
  uring& ring;
  uring_cache cache;
  file_in_memory file;
};

void write(local_stage& stage, std::span<std::byte> from) {
  const auto lease = need(stage.cache.acquire(from), "cannot register a buffer");
  need(stage.ring.perform({true, stage.file.descriptor(), from, 0, lease.registration()}), "cannot write a buffer");
}

void show_hits_inside(local_stage& stage) {
  std::vector<std::byte> memory(buffer_bytes);
  fill(memory, 1);
  write(stage, memory);
  require(stage.file.begins_with(1, memory.size()), "the whole buffer arrived");
  const auto before = stage.cache.statistics();
  const auto calls = stage.cache.backend().calls();
  for (std::size_t at = 0; at < memory.size(); at += part_bytes) {
    const auto part = std::span(memory).subspan(at, part_bytes);
    fill(part, at);
    write(stage, part);
    require(stage.file.begins_with(at, part.size()), "a part of the buffer arrived");
  }
  const auto hits = stage.cache.statistics().hits - before.hits;
  require(hits == buffer_bytes / part_bytes, "each part was found inside the whole");
  require(stage.cache.backend().calls() == calls, "no part was registered again");
  print_ok("hit inside",
           fmt::format("1 MiB registered once; {} parts of 64 KiB inside this buffer written to a file: {} hits, no "
                       "further registration by the kernel",
                       hits, hits),
           2 * buffer_bytes);
  stage.cache.invalidate(memory.data(), memory.size());
}

// The content of the file after the kernel wrote a buffer, its pages were replaced by others with other bytes, and the
// kernel wrote it again.
enum class written : std::uint8_t { old_bytes, new_bytes };

written write_replaced(local_stage& stage, bool tell_the_cache) {
  constexpr std::uint64_t old_content = 2;
  constexpr std::uint64_t new_content = 3;
  remappable_memory memory(part_bytes);
  fill(memory.bytes(), old_content);
  write(stage, memory.bytes());
  require(stage.file.begins_with(old_content, part_bytes), "the buffer arrived");
  if (tell_the_cache) stage.cache.invalidate(memory.bytes().data(), part_bytes);
  memory.remap();
  fill(memory.bytes(), new_content);
  write(stage, memory.bytes());
  const bool fresh = stage.file.begins_with(new_content, part_bytes);
  require(fresh || stage.file.begins_with(old_content, part_bytes), "one of the two arrived");
  stage.cache.invalidate(memory.bytes().data(), part_bytes);
  return fresh ? written::new_bytes : written::old_bytes;
}

// The old registration still pins the old pages: the cache does not know that until it is told.
void show_stale(local_stage& blind) {
  require(write_replaced(blind, false) == written::old_bytes, "without notice, the device writes the old pages");
  print_ok("without notice",
           "no monitor. The buffer was unmapped and its address mapped again without telling the cache; the program "
           "wrote new bytes to the address, and the kernel wrote the OLD bytes to the file: a cache must prevent this",
           2 * part_bytes);
  require(write_replaced(blind, true) == written::new_bytes, "with invalidate, the device writes the new pages");
  print_ok("invalidate",
           "the same again, but with cache.invalidate() first: the cache registered the new pages, and the new bytes "
           "arrived",
           2 * part_bytes);
}

void show_monitors(local_stage& watched) {
  const std::string who(watched.cache.monitors());
  if (who.starts_with("none")) {
    fmt::print("{}", paragraph("  --  no monitor: ", who));
    return;
  }
  const auto before = watched.cache.statistics();
  require(write_replaced(watched, false) == written::new_bytes, "a monitor sees that the pages are replaced");
  const auto after = watched.cache.statistics();
  require(after.misses_invalidated == before.misses_invalidated + 1, "the cache registered the new pages");
  print_ok("a stale byte caught",
           fmt::format("the same once more, without invalidate(), with the default monitors ({}): the cache detected "
                       "that the old pages were unmapped, registered the new pages, and the new bytes arrived",
                       who),
           2 * part_bytes);
}

latency time_writes(uring& ring, const file_in_memory& file, const char* subject) {
  constexpr std::size_t count = 4;
  constexpr std::size_t writes = 500;
  const auto how = need(make_io_subject(subject, ring, {count, part_bytes, pinfold::page_kind::plain, {}}),
                        "cannot use registered buffers");
  nanoseconds samples;
  for (std::size_t i = 0; i < writes; ++i) {
    const auto number = i % count;
    fill(how->buffer(number), i);
    samples.push_back(time_of([&] {
      const auto registered = need(how->begin(number, pinfold::local_access), "cannot register a buffer");
      need(ring.perform({true, file.descriptor(), how->buffer(number), 0, registered}), "cannot write a buffer");
      need(how->end(number), "cannot unregister a buffer");
    }));
    require(file.begins_with(i, part_bytes), "a timed write arrived");
  }
  return summarise(std::move(samples));
}

void show_times(uring& ring) {
  const file_in_memory file;
  auto rows = json::array();
  for (const char* subject : io_subjects) {
    const auto measured = time_writes(ring, file, subject);
    rows.push_back({{"size", part_bytes}, {"subject", subject}});
    add_latency(rows.back(), measured);
  }
  fmt::print("\n{}", table({size("write", "size"), words("buffer", "subject"), count("writes", "iterations"),
                            microseconds("p50[us]", "p50_ns", 2), microseconds("p99[us]", "p99_ns", 2)},
                           rows));
  fmt::print(
      "\n{}",
      paragraph("  ",
                "The file is in memory: a write to it is a copy, and pinning the pages of a buffer takes a small part "
                "of that time, so a registered buffer gains little here. The cost of registering for each I/O is the "
                "difference between the rows per I/O and the others. For files on devices with DMA: pinfold perf io"));
}

// Returns the error of registering a buffer on this machine, if any: io_uring is often forbidden, and memory limits can
// be low.
pinfold::result<void> try_to_register(uring& ring) {
  auto registrar = ring.registrar();
  if (!registrar) return tl::unexpected(registrar.error());
  const auto memory = paged_memory::map(buffer_bytes, pinfold::page_kind::plain);
  if (!memory) return tl::unexpected(memory.error());
  return registrar->open(memory->where(), pinfold::local_access).and_then([&](const auto& made) {
    return registrar->close(made);
  });
}

}  // namespace

void show_local() {
  auto ring = uring::open(1);
  const auto usable = ring.and_then([](const auto& made) { return try_to_register(*made); });
  if (!usable) {
    fmt::print("{}", paragraph("  --  left out: ", pinfold::describe(usable.error())));
    return;
  }
  {
    local_stage blind{**ring, (*ring)->cache({.name = "demo", .monitor = pinfold::monitor_choice::manual}), {}};
    show_hits_inside(blind);
    show_stale(blind);
  }
  {
    local_stage watched{**ring, (*ring)->cache({.name = "demo"}), {}};
    show_monitors(watched);
  }
  show_times(**ring);
}

}  // namespace tool
