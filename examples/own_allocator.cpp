// SPDX-License-Identifier: BSD-3-Clause
// A program that announces itself that memory goes, and so needs no hooks. Its pools take memory from a resource that
// announces memory before it returns it to the system. A type's own `operator delete` does the same.
#include <pinfold/cache.hpp>
#include <pinfold/monitors/explicit.hpp>
#include <pinfold/registrars/null.hpp>

#include <cstdio>
#include <memory_resource>
#include <new>
#include <sys/mman.h>

namespace {

struct packet {
  static void operator delete(void* block, std::size_t bytes) {
    pinfold::announce_gone(block, bytes);
    ::operator delete(block);
  }
  char bytes[4096];
};

struct pages final : std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    return made;
  }
  void do_deallocate(void* at, std::size_t bytes, std::size_t) override { munmap(at, bytes); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

int main() {
  pinfold::cache cache{pinfold::null_registrar{}, {.monitor = pinfold::monitor_choice::explicit_}};
  pages system;
  pinfold::announcing_resource announcing{&system};
  std::pmr::unsynchronized_pool_resource pool{&announcing};
  for (int round = 0; round < 100; ++round) {
    void* buffer = pool.allocate(4096);  // mostly the same block, which stays registered
    if (!cache.acquire(buffer, 4096)) return 1;
    pool.deallocate(buffer, 4096);
  }
  const auto kept = cache.statistics().opens;
  pool.release();  // now the memory goes
  auto buffer = pool.allocate(4096);
  if (!cache.acquire(buffer, 4096)) return 1;
  auto* sent = new packet;
  if (!cache.acquire(sent, sizeof *sent)) return 1;
  delete sent;
  if (!cache.progress()) return 1;  // closes the stale registrations: the packet's, and the pool's earlier one
  std::printf("%s\n", describe(cache.statistics()).c_str());
  return kept == 1 && cache.statistics().opens == 3 && cache.statistics().closes == 2 ? 0 : 1;
}
