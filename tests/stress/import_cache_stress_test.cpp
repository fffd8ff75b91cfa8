// SPDX-License-Identifier: BSD-3-Clause
// Many threads, with more regions than room, and handles that are replaced meanwhile: no hang, no leak, no wrong byte.
#include "support/fixtures/import_arena.hpp"

#include <pinfold/importers/memfd.hpp>

namespace pinfold::testing::import_cache_stress_test {
namespace {

/// Checks that every word of a buffer is its serial.
template <class Handle>
bool holds_serials(const Handle& of, const void* data) {
  const auto* words = static_cast<const std::uint64_t*>(data);
  for (std::size_t i = 0; i < of.size / 8; i += 128)
    if (words[i] != of.serial) return false;
  return words[of.size / 8 - 1] == of.serial;
}

struct fake_source {
  using importer_type = fake_importer;
  using handle = fake_handle;

  std::shared_ptr<fake_world> world = std::make_shared<fake_world>();

  fake_source() { world->capacity = arena_room - 4; }
  importer_type importer() { return importer_type(world); }
  handle replace(std::size_t slot, std::uint64_t size) {
    return world->allocate(slot % 2, 0x1000000 + slot / 2 * 4 * arena_unit, size);
  }
  void make_it_fail() {
    world->inject([count = std::make_shared<std::atomic<unsigned>>(0)](driver_call call, const fake_handle&) {
      if (spared) return std::optional<error>();
      const auto n = ++*count;
      if (n % 97 == 0) return std::optional(error{errc::driver_error, native_kind::posix, 5, "injected"});
      if (n % 61 == 0 && call == driver_call::open)
        return std::optional(error{errc::out_of_resources, native_kind::posix, 12, "injected"});
      return std::optional<error>();
    });
  }
  void heal() { world->heal(); }
  [[nodiscard]] static bool holds(const handle& of, const void* data) { return holds_serials(of, data); }
  [[nodiscard]] std::size_t open_count(import_cache<importer_type>&) const {
    EXPECT_EQ(world->misuses, 0U);
    return world->open_count();
  }
};

struct memfd_source {
  using importer_type = memfd_importer;
  using handle = memfd_handle;

  std::array<memfd_exporter, 2> exporters{std::move(*memfd_exporter::create()), std::move(*memfd_exporter::create())};
  std::array<memfd_buffer, arena_slots> buffers;

  memfd_source() {
    for (std::size_t i = 0; i < arena_slots; ++i) replace(i, 4 * arena_unit);
  }
  importer_type importer() { return importer_type(); }
  handle replace(std::size_t slot, std::uint64_t size) {
    auto& mine = buffers[slot];
    void* const where = mine.data();
    mine = memfd_buffer();
    auto made = exporters[slot % 2].allocate(size, where);
    // Another thread's mapping may have taken the address in between: then the buffer moves, as in a real program.
    if (!made) made = exporters[slot % 2].allocate(size);
    if (!made) throw std::runtime_error(describe(made.error()));
    auto* words = reinterpret_cast<std::uint64_t*>(made->data());
    std::fill(words, words + made->size() / 8, made->handle().serial);
    mine = std::move(*made);
    return mine.handle();
  }
  void make_it_fail() {}
  void heal() {}
  [[nodiscard]] static bool holds(const handle& of, const void* data) { return holds_serials(of, data); }
  [[nodiscard]] std::size_t open_count(import_cache<importer_type>& cache) const { return cache.backend().held(); }
};

template <class Source>
class import_cache_stress : public ::testing::Test {};
using sources = ::testing::Types<fake_source, memfd_source>;
TYPED_TEST_SUITE(import_cache_stress, sources);

TYPED_TEST(import_cache_stress, threads_never_hang_leak_or_read_wrong_bytes) { run_in_every_mode<TypeParam>(); }

}  // namespace
}  // namespace pinfold::testing::import_cache_stress_test
