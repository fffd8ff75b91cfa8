// SPDX-License-Identifier: BSD-3-Clause
// A std::pmr::vector whose memory is registered before the vector allocates it. The registrar here only counts; replace
// it with the registrar of your device.
#include <pinfold/pools/registered_pool.hpp>

#include <cstdio>
#include <memory>
#include <memory_resource>
#include <vector>

namespace {

struct counting_registrar {
  static constexpr const char* name = "counting";
  struct registration_type {
    int index;
  };
  std::shared_ptr<int> opened = std::make_shared<int>(0);

  pinfold::registrar_limits limits() const noexcept { return {}; }
  pinfold::result<registration_type> open(pinfold::range, pinfold::rights) noexcept {
    return registration_type{(*opened)++};
  }
  pinfold::result<void> close(const registration_type&) noexcept { return {}; }
};

}  // namespace

int main() {
  const counting_registrar device;
  pinfold::cache cache(device);
  pinfold::registered_pool pool(cache);

  std::vector<std::pmr::vector<double>> fields;
  for (std::size_t i = 0; i < 1000; ++i) fields.emplace_back(100, 1.0, &pool);

  auto buffer = pool.allocate_registered(64 * 1024, 4096);  // aligned for O_DIRECT
  if (!buffer) return std::printf("%s\n", describe(buffer.error()).c_str()), 1;
  const auto known = pool.registration(fields[500].data());
  if (!known) return std::printf("%s\n", describe(known.error()).c_str()), 1;
  std::printf("a buffer at %p is in registration %d, a vector's elements are in %d\n", buffer->data,
              buffer->registration.index, known->index);
  pool.deallocate(buffer->data, 64 * 1024, 4096);

  for (const auto& slab : pool.slabs())
    std::printf("slab of %zu KiB on %s pages, %zu KiB used%s%s\n", slab.memory.size() / 1024, name_of(slab.pages),
                slab.used / 1024, slab.reason[0] == '\0' ? "" : ": ", slab.reason);
  fields.clear();
  std::printf("%zu bytes trimmed, %d registration(s) for 1001 allocations\n", pool.trim(), *device.opened);
  return *device.opened == 1 ? 0 : 1;
}
