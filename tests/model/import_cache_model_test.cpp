// SPDX-License-Identifier: BSD-3-Clause
// Random histories of one cache, compared step by step with the oracle: R3-R7, R9-R17, R40-R43, R47, R48.
#include "model/agreement.hpp"
#include "model/import_model.hpp"
#include "support/doubles/fake_importer.hpp"
#include "support/doubles/through_c.hpp"

namespace pinfold::testing::import_cache_model_test {
namespace {

struct fake_peers {
  static constexpr std::uint64_t unit = 64;  ///< of places and sizes
  static constexpr int most_failures = 3;
  static constexpr errc lasting_failure = errc::driver_error;

  fake_peers() = default;
  ~fake_peers() { EXPECT_EQ(world->misuses, 0U); }
  fake_peers(const fake_peers&) = delete;
  fake_peers& operator=(const fake_peers&) = delete;

  [[nodiscard]] fake_importer importer() const { return fake_importer(world); }
  void start(const import_oracle&, std::size_t capacity) {
    world->capacity = capacity;
    world->inject([this](driver_call call, const fake_handle&) -> std::optional<error> {
      int& left = call == driver_call::open ? failing_opens : failing_closes;
      if (left == 0) return std::nullopt;
      --left;
      return error{call == driver_call::open ? open_failure : errc::driver_error, native_kind::posix, 5, "injected"};
    });
  }
  [[nodiscard]] fake_handle allocate(std::uint32_t where, std::uint32_t size, std::list<fake_handle>& exported) const {
    const auto made = world->allocate(where % 2, unit * (1 + where / 2 % 12), unit * (1 + size % 4));
    exported.remove_if(
        [&](auto& old) { return old.exporter == made.exporter && old.allocation().overlaps(made.allocation()); });
    return made;
  }
  [[nodiscard]] std::uint64_t kill(std::uint64_t peer) const { return world->kill(peer), peer; }
  static fake_handle handle(const fake_handle& of) { return of; }
  static region gone(const step& s, const fake_handle&) {
    return {s.a % 2, {unit * (s.b % 16), unit * (s.b % 16) + 1 + s.a % 256}};
  }
  void fail_opens(int count, errc failure) { failing_opens = count, open_failure = failure; }
  void fail_closes(int count) { failing_closes = count; }
  static bool shows(const fake_handle& of, std::size_t, const void* data) { return serial_at(data) == of.serial; }
  template <class Cache>
  void check(const Cache& cache) const {
    RC_ASSERT(cache.statistics().open == open_count());
    RC_ASSERT(world->misuses == 0U);
  }
  [[nodiscard]] std::size_t open_count() const { return world->open_count(); }

  std::shared_ptr<fake_world> world = std::make_shared<fake_world>();
  int failing_opens = 0;
  int failing_closes = 0;
  errc open_failure = errc::driver_error;
};

TEST(import_cache_model, agrees_with_the_oracle_after_every_step) {
  expect_agreement<import_model>(model_steps(), [] { return fake_peers(); });
}

template <class World>
using c_model = import_model<World, through_c>;

TEST(c_import_cache_model, agrees_with_the_oracle_after_every_step) {
  expect_agreement<c_model>(model_steps(), [] { return fake_peers(); });
}

}  // namespace
}  // namespace pinfold::testing::import_cache_model_test
