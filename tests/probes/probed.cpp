// SPDX-License-Identifier: BSD-3-Clause
// A program that contains the library and passes each of its probes, with arguments that the test knows.
#include "support/doubles/fake_importer.hpp"
#include "support/doubles/fake_registrar.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/monitors/announce.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {
namespace {

cache_options named(const char* name) {
  cache_options options;
  options.name = name;
  options.monitor = monitor_choice::manual;
  options.shards = 1;
  return options;
}

void require(bool what) {
  if (!what) std::abort();
}

bool touch(cache<fake_registrar>& in, std::uintptr_t begin) {
  return in.acquire(reinterpret_cast<void*>(begin), 0x1000).has_value();
}

// What the driver does: opens, refuses an open, and refuses a close.
void local_memory() {
  auto options = named("local");
  options.max_count = 2;
  auto device = std::make_shared<fake_device>();
  cache<fake_registrar> local(fake_registrar(device), std::move(options));
  require(touch(local, 0x10000));
  require(touch(local, 0x20000));
  require(touch(local, 0x10000));  // a hit
  require(touch(local, 0x30000));  // evicts
  device->fail_opens(
      [](const range&, access_flags) { return error{errc::not_permitted, native_kind::posix, EPERM, "refused"}; });
  require(!touch(local, 0x40000));
  device->fail_opens(nullptr);
  device->fail_closes(1);
  local.invalidate(reinterpret_cast<void*>(0x30000), 0x1000);
  require(!local.flush());  // the close that is refused
  require(local.flush().has_value());
}

void imports() {
  auto world = std::make_shared<fake_world>();
  import_cache<fake_importer> cache(fake_importer(world), named("imports"));
  const auto old = world->allocate(7, 0x50000, 0x2000);
  require(cache.acquire({7}, old, old.base, 16).has_value());
  const auto reallocated = world->allocate(7, 0x50000, 0x2000);
  require(cache.acquire({7}, reallocated, reallocated.base, 16).has_value());
}

void* mapped() { return ::mmap(nullptr, 0x3000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

// Memory that goes away.
void gone() {
  auto options = named("hooked");
  options.monitor = monitor_choice::hooks;
  cache<fake_registrar> cache(fake_registrar(std::make_shared<fake_device>()), std::move(options));
  void* const at = mapped();
  require(cache.acquire(at, 0x3000).has_value());
  std::printf("leaves %p\n", at);
  announce_gone(static_cast<char*>(at) + 0x2000, 0x1000);
  require(cache.acquire(at, 0x3000).has_value());
  require(::munmap(at, 0x3000) == 0);
}

// A monitor that fails and is made anew, where the kernel lets this user have it.
void monitor_fails() {
  auto options = named("monitored");
  options.monitor = monitor_choice::hooks | monitor_choice::userfaultfd;
  cache<fake_registrar> cache(fake_registrar(std::make_shared<fake_device>()), std::move(options));
  if (cache.monitors() != "hooks+userfaultfd") return;
  void* const at = mapped();
  require(cache.acquire(at, 0x3000).has_value());
  std::puts("a monitor fails");
  require(::syscall(SYS_close_range, 3U, ~0U, 0U) == 0);
  require(cache.acquire(mapped(), 0x3000).has_value());
}

}  // namespace
}  // namespace pinfold::testing

int main() {
  using namespace pinfold::testing;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  local_memory();
  imports();
  gone();
  monitor_fails();
}
