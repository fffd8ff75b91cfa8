// SPDX-License-Identifier: BSD-3-Clause
// A program that announces itself that memory goes, and so needs no other monitor. Its pool takes memory from a
// resource that announces memory before it returns it to the system. A type's own `operator delete` does the same.
#include <pinfold/cache.hpp>
#include <pinfold/monitors/announce.hpp>
#include <pinfold/registrars/null.hpp>

#include <cstdio>
#include <memory_resource>
#include <new>
#include <string>
#include <sys/mman.h>

namespace {

constexpr std::size_t block_bytes = 4096;
constexpr int rounds = 100;

// Takes memory from the system, and returns it to the system.
class mapping_resource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/) override {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    return mapped;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t /*alignment*/) override { munmap(memory, bytes); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

// A type that announces each object before it frees it.
struct packet {
  static void operator delete(void* memory, std::size_t bytes) {
    pinfold::announce_gone(memory, bytes);
    ::operator delete(memory);
  }
  char bytes[block_bytes];
};

using buffer_cache = pinfold::cache<pinfold::null_registrar>;

// Acquires the memory, as a program does that sends it. A real registrar's keys would be in the lease.
bool use(buffer_cache& cache, const void* memory) {
  const auto lease = cache.acquire(memory, block_bytes);
  if (!lease) std::fprintf(stderr, "cannot register: %s\n", pinfold::describe(lease.error()).c_str());
  return lease.has_value();
}

bool use_blocks_of(std::pmr::memory_resource& pool, buffer_cache& cache) {
  for (int round = 0; round < rounds; ++round) {
    void* block = pool.allocate(block_bytes);
    const bool used = use(cache, block);
    pool.deallocate(block, block_bytes);
    if (!used) return false;
  }
  return true;
}

bool use_packet(buffer_cache& cache) {
  const auto* sent = new packet;
  const bool used = use(cache, sent);
  delete sent;  // announces the packet
  return used;
}

}  // namespace

int main() {
  // `manual`: the cache keeps registrations because the program promises to announce memory that goes.
  buffer_cache cache{pinfold::null_registrar{}, {.monitor = pinfold::monitor_choice::manual}};
  mapping_resource system;
  pinfold::announcing_resource announcing{&system};
  std::pmr::unsynchronized_pool_resource pool{&announcing};

  // The pool hands out the same block again and again. It stays registered, because the pool does not return it.
  if (!use_blocks_of(pool, cache)) return 1;
  const bool registered_once = cache.statistics().opens == 1;

  pool.release();  // returns all memory to the system, and so announces it
  void* block = pool.allocate(block_bytes);
  if (!use(cache, block)) return 1;  // registers, even if the block has the old address
  if (!use_packet(cache)) return 1;

  // Closes what was announced: the registrations of the pool's earlier block and of the packet.
  if (const auto closed = cache.progress(); !closed) {
    std::fprintf(stderr, "cannot close: %s\n", pinfold::describe(closed.error()).c_str());
    return 1;
  }
  const auto statistics = cache.statistics();
  std::puts(pinfold::describe(statistics).c_str());
  return registered_once && statistics.opens == 3 && statistics.closes == 2 ? 0 : 1;
}
