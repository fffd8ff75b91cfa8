// SPDX-License-Identifier: BSD-3-Clause
// Containers and I/O buffers in a pool of registered memory. The pool registers a whole slab before it allocates from
// it, so a thousand std::pmr::vectors and an aligned buffer need one registration.
#include <pinfold/pools/registered_pool.hpp>

#include <cstdio>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

namespace {

constexpr std::size_t vector_count = 1000;
constexpr std::size_t buffer_bytes = 65536;
constexpr std::size_t direct_io_alignment = 4096;  // what O_DIRECT asks for

// A registrar that only counts. Replace it with the registrar of your device, for example `verbs_registrar`.
struct counting_registrar {
  static constexpr const char* name = "counting";
  struct registration_type {
    int index;
  };

  pinfold::registrar_limits limits() const noexcept { return {}; }
  pinfold::result<registration_type> open(pinfold::range, pinfold::access_flags) noexcept {
    const int index = *opens;
    *opens += 1;
    return registration_type{index};
  }
  pinfold::result<void> close(const registration_type&) noexcept { return {}; }

  // Shared with the cache's copy of the registrar.
  std::shared_ptr<int> opens = std::make_shared<int>(0);
};

using pool_type = pinfold::registered_pool<counting_registrar>;

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

// Allocates a buffer that comes with its registration, and looks up that of a container's elements.
bool show_registrations(pool_type& pool, const std::pmr::vector<double>& elements) {
  const auto buffer = pool.allocate_registered(buffer_bytes, direct_io_alignment);
  if (!buffer) {
    report("cannot allocate a buffer", pinfold::describe(buffer.error()));
    return false;
  }
  const auto registration = pool.registration(elements.data());
  if (!registration) {
    report("the vector is not in the pool", pinfold::describe(registration.error()));
    return false;
  }
  std::printf("a buffer at %p is in registration %d, a vector's elements are in %d\n", buffer->data,
              buffer->registration.index, registration->index);
  pool.deallocate(buffer->data, buffer_bytes, direct_io_alignment);
  return true;
}

void show_slabs(const pool_type& pool) {
  for (const pinfold::slab_info& slab : pool.slabs()) {
    std::printf("slab of %zu KiB on %s pages, %zu KiB used", slab.memory.size() / 1024, name_of(slab.pages),
                slab.used / 1024);
    const bool is_second_choice = slab.reason[0] != '\0';  // the system did not provide a better kind of page
    if (is_second_choice) std::printf(": %s", slab.reason);
    std::printf("\n");
  }
}

}  // namespace

int main() {
  const counting_registrar device;
  pinfold::cache cache(device);
  pool_type pool(cache);

  std::vector<std::pmr::vector<double>> fields;
  for (std::size_t i = 0; i < vector_count; ++i) fields.emplace_back(100, 1.0, &pool);
  if (!show_registrations(pool, fields[500])) return 1;
  show_slabs(pool);

  fields.clear();  // the pool keeps the empty slab, registered, until `trim`
  const std::size_t trimmed = pool.trim();
  std::printf("%zu bytes trimmed, %d registration(s) for %zu allocations\n", trimmed, *device.opens, vector_count + 1);
  return *device.opens == 1 ? 0 : 1;
}
