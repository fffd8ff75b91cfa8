// SPDX-License-Identifier: BSD-3-Clause
// allocator_workload <seconds> <malloc|mappings|inline> <monitors: automatic|strict|bpf|unannounced>
//
// Threads begin and end; they allocate, resize, free and send memory through registered buffers of an io_uring, by one
// cache. Every byte that arrives is compared with the byte that was sent. Exits with 0 when all were right, 1 when some
// were not, and 77 when no monitor proved itself here.
#include "support/doubles/test_ring.hpp"
#include "support/host/raw_calls.hpp"

#include <pinfold/cache.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <mutex>
#include <random>
#include <string_view>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {
namespace {

/// A source of memory: how to allocate it and how to give it back.
struct source {
  std::byte* (*get)(std::size_t);
  std::byte* (*resize)(std::byte*, std::size_t before, std::size_t after);
  void (*give)(std::byte*, std::size_t);
};

const source from_malloc{
    [](std::size_t bytes) { return static_cast<std::byte*>(std::malloc(bytes)); },
    [](std::byte* at, std::size_t, std::size_t after) { return static_cast<std::byte*>(std::realloc(at, after)); },
    [](std::byte* at, std::size_t) { std::free(at); }};

std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

std::byte* map(std::size_t bytes) {
  void* const at = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

const source from_mappings{map,
                           [](std::byte* at, std::size_t before, std::size_t after) {
                             void* const moved = ::mremap(at, whole_pages(before), whole_pages(after), MREMAP_MAYMOVE);
                             return moved == MAP_FAILED ? nullptr : static_cast<std::byte*>(moved);
                           },
                           [](std::byte* at, std::size_t bytes) { ::munmap(at, whole_pages(bytes)); }};

// As in the runtime of a language that does without the C library.
const source from_inline_calls{
    map,
    [](std::byte* at, std::size_t before, std::size_t after) {
      const long moved =
          raw_call(SYS_mremap, at, whole_pages(before), static_cast<long>(whole_pages(after)), MREMAP_MAYMOVE);
      return moved < 0 && moved > -4096 ? nullptr : reinterpret_cast<std::byte*>(moved);
    },
    [](std::byte* at, std::size_t bytes) { static_cast<void>(raw_call(SYS_munmap, at, whole_pages(bytes))); }};

struct block {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
};

class workload {
 public:
  workload(const source& memory, cache_options how)
      : memory_(memory), cache_(registrar_on(ring_, 256), with_budget(std::move(how))) {
    if (::ftruncate(file_, most_sent) != 0) throw std::runtime_error("no file");
  }
  workload(const workload&) = delete;
  workload& operator=(const workload&) = delete;
  ~workload() { ::close(file_); }

  [[nodiscard]] bool keeps() const { return !cache_.monitors().starts_with("none"); }

  /// Each of four threads has at least one whole life. Returns how many times wrong bytes arrived.
  std::uint64_t run(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 4; ++i)
      threads.emplace_back([this, until, i] {
        for (std::uint64_t life = 0; life == 0 || std::chrono::steady_clock::now() < until; ++life)
          std::thread([this, until = life == 0 ? never : until, seed = 1000 * life + i] { live(until, seed); }).join();
      });
    threads.clear();
    if (shared_.at != nullptr) memory_.give(shared_.at, shared_.bytes);
    shared_ = {};
    const auto now = cache_.statistics();
    std::printf("%s: %llu sent, %llu hits, %llu turned stale, %llu not kept, %llu refused, %llu wrong\n",
                cache_.monitors().c_str(), ull(sent_), ull(now.hits), ull(now.misses_invalidated), ull(now.unmonitored),
                ull(refused_), ull(wrong_));
    return sent_ == 0 ? 1 : wrong_.load();
  }

 private:
  static constexpr std::size_t most_sent = 65536;
  static constexpr int steps_of_a_life = 400;
  static constexpr auto never = std::chrono::steady_clock::time_point::max();

  static unsigned long long ull(std::uint64_t number) { return number; }
  static cache_options with_budget(cache_options how) {
    how.max_count = 200;
    return how;
  }

  void live(std::chrono::steady_clock::time_point until, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::array<block, 12> own{};
    for (int step = 0; step < steps_of_a_life && std::chrono::steady_clock::now() < until; ++step) {
      block& one = own.at(random() % own.size());
      if (random() % 16 == 0) exchange(one);
      if (random() % 8 == 0) send_of_stack(random());
      change(one, random);
      if (one.at != nullptr) send_of(one, random);
    }
    for (const block& one : own)
      if (one.at != nullptr) memory_.give(one.at, one.bytes);
  }

  static std::size_t some_size(std::mt19937_64& random) {
    const auto magnitude = std::size_t{4096} << random() % 12;  // up to 16 MiB, small ones as often
    return magnitude + random() % magnitude;
  }

  void change(block& one, std::mt19937_64& random) {
    if (one.at == nullptr) {
      one.bytes = some_size(random);
      one.at = memory_.get(one.bytes);
    } else if (random() % 4 == 0) {
      memory_.give(one.at, one.bytes);
      one = {};
    } else if (random() % 8 == 0) {
      const auto bytes = some_size(random);
      std::byte* const moved = memory_.resize(one.at, one.bytes, bytes);
      if (moved != nullptr) one = {moved, bytes};
    } else if (random() % 64 == 0) {
      ::malloc_trim(0);
    }
  }

  // The thread that frees a block is not the one that allocated it.
  void exchange(block& one) {
    const std::lock_guard guard(shared_mutex_);
    std::swap(shared_, one);
  }

  void send_of(const block& one, std::mt19937_64& random) {
    const auto bytes = std::min(one.bytes, std::size_t{4096} << random() % 5);
    const auto offset = one.bytes == bytes ? 0 : random() % (one.bytes - bytes);
    send(one.at + offset, bytes, random());
  }

  void send_of_stack(std::uint64_t content) {
    std::array<std::byte, 24576> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): `send` fills it
    send(some.data(), some.size(), content);
  }

  static std::byte expected(std::uint64_t content, std::size_t place) {
    return static_cast<std::byte>((content >> 8U * (place % 8U)) + place / 4096U);
  }

  // ThreadSanitizer sees neither `mremap` nor calls that go past the C library. It takes a page that one thread gives
  // back and another thread's page at the same address for the same memory.
  __attribute__((no_sanitize("thread"))) static void fill(std::byte* at, std::size_t bytes, std::uint64_t content) {
    for (std::size_t i = 0; i < bytes; ++i) at[i] = expected(content, i);
  }

  void send(std::byte* at, std::size_t bytes, std::uint64_t content) {
    fill(at, bytes, content);
    const auto held = cache_.acquire(at, bytes);
    if (!held) {
      refused_.fetch_add(1);
      return;
    }
    const std::lock_guard guard(ring_mutex_);
    const auto size = static_cast<unsigned>(bytes);
    if (ring_.write(file_, at, size, 0, held->registration().index) != static_cast<int>(size)) {
      wrong_.fetch_add(1);
      return;
    }
    sent_.fetch_add(1);
    if (::pread(file_, received_.data(), bytes, 0) != static_cast<ssize_t>(bytes)) throw std::runtime_error("no file");
    for (std::size_t i = 0; i < bytes; ++i) {
      if (received_.at(i) == expected(content, i)) continue;
      wrong_.fetch_add(1);
      return;
    }
  }

  const source& memory_;
  test_ring ring_;
  int file_ = ::memfd_create("received", MFD_CLOEXEC);
  pinfold::cache<io_uring_registrar> cache_;
  std::mutex ring_mutex_, shared_mutex_;
  block shared_;
  std::array<std::byte, most_sent> received_{};
  std::atomic<std::uint64_t> sent_{0}, refused_{0}, wrong_{0};
};

int run(std::string_view seconds, std::string_view memory, std::string_view monitors) {
  cache_options how;
  if (monitors == "unannounced") how.monitor = monitor_choice::manual;
  if (monitors == "bpf") how.monitor = monitor_choice::bpf;
  how.strict = monitors == "strict";
  const source& from = memory == "malloc" ? from_malloc : memory == "mappings" ? from_mappings : from_inline_calls;
  const auto trial = std::make_unique<workload>(from, how);
  if (!trial->keeps()) return 77;
  return trial->run(std::chrono::milliseconds(static_cast<long>(1000 * std::atof(seconds.data())))) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pinfold::testing

int main(int count, char** all) try {
  return count == 4 ? pinfold::testing::run(all[1], all[2], all[3]) : 2;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "%s\n", failed.what());
  return 2;
}
