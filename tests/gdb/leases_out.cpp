// SPDX-License-Identifier: BSD-3-Clause
// A program that aborts with leases out. It writes what its caches say to the file that it is given; the test compares
// that with what gdb shows of the process and of its core file.
#include "support/doubles/c_device.hpp"
#include "support/doubles/fake_importer.hpp"
#include "support/doubles/fake_registrar.hpp"

#include <pinfold/pinfold.h>
#include <pinfold/pinfold.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

using namespace pinfold;
using namespace pinfold::testing;
using local_cache = cache<fake_registrar>;
using imports_cache = import_cache<fake_importer>;

// Global, so that gdb finds them in every frame.
local_cache* local = nullptr;
imports_cache* imports = nullptr;
pinfold_cache* of_c = nullptr;
local_cache::lease first_lease, again_lease, thread_lease, closed_lease, bypass_lease, empty_lease;
imports_cache::lease imported_lease;
pinfold_lease c_lease, c_empty_lease;
const char* not_a_cache = "not a cache";

namespace {

c_device device;

cache_options named(const char* name) {
  cache_options options;
  options.name = name;
  options.monitor = monitor_choice::manual;
  options.drain_timeout = std::chrono::milliseconds(0);
  return options;
}

local_cache::lease leased(local_cache& from, std::uintptr_t begin, std::uintptr_t bytes, acquire_options how = {}) {
  auto got = from.acquire(reinterpret_cast<void*>(begin), bytes, local_access, how);
  if (!got) std::abort();
  return *std::move(got);
}

void fill_local() {
  auto options = named("of \"local\" memory");
  options.max_bytes = 1 << 20;
  local = new local_cache(fake_registrar(std::make_shared<fake_device>()), std::move(options));
  for (std::uintptr_t i = 1; i <= 300; ++i) static_cast<void>(leased(*local, i * 0x10000, 0x1000));
  first_lease = leased(*local, 0x20000, 0x1000);
  again_lease = leased(*local, 0x20800, 0x100);
  std::thread([] { thread_lease = leased(*local, 0x2000000, 0x3000, {.persistent = true}); }).join();
  bypass_lease = leased(*local, 0x3000000, 0x1800, {.bypass = true});
}

void fill_imports() {
  auto world = std::make_shared<fake_world>();
  imports = new imports_cache(fake_importer(world), named("imports"));
  for (std::uint64_t peer = 1; peer <= 3; ++peer) {
    const auto handle = world->allocate(peer, 0x10000 * peer, 0x2000);
    auto got = imports->acquire({peer}, handle, handle.base + 64, 64);
    if (!got) std::abort();
    if (peer == 2) imported_lease = *std::move(got);
  }
}

void fill_c() {
  pinfold_options options;
  if (pinfold_options_init(&options, sizeof options) != PINFOLD_OK) std::abort();
  options.monitor = PINFOLD_MONITOR_MANUAL;
  const auto table = device.table();
  if (pinfold_create(&table, &device, &options, &of_c) != PINFOLD_OK) std::abort();
  c_lease = pinfold_acquire(of_c, reinterpret_cast<void*>(0x5000), 0x1000, PINFOLD_LOCAL_READ);
}

void destroy_under_a_lease() {
  local_cache gone(fake_registrar(std::make_shared<fake_device>()), named("gone"));
  closed_lease = leased(gone, 0x70000, 0x1000);
}

void write(std::ostream& to, const char* name, const statistics& counted, const std::vector<entry_info>& entries) {
  to << R"({"name": ")" << name << R"(", "opens": )" << counted.opens << R"(, "hits": )" << counted.hits
     << R"(, "bytes": )" << counted.bytes_now << R"(, "entries": [)";
  const char* between = "";
  for (const auto& one : entries) {
    to << between << '[' << one.peer.value << ", " << one.covered.begin << ", " << one.covered.end << ", " << one.bytes
       << ", \"" << name_of(one.state) << "\", " << one.leases << ", " << one.hits << ", " << one.owner << ']';
    between = ", ";
  }
  to << "]}\n";
}

}  // namespace

int main(int, char** arguments) {
  fill_local();
  fill_imports();
  fill_c();
  destroy_under_a_lease();
  std::ofstream told(arguments[1]);
  write(told, "local", local->statistics(), local->dump());
  write(told, "imports", imports->statistics(), imports->dump());
  told.close();
  std::abort();
}
