// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"
#include "fabric/node.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <memory>
#include <mutex>
#include <set>

namespace pinfold::testing::libfabric_registrar_test {
namespace {

template <const char* Provider>
struct provider_rig {
  using registrar_type = libfabric_registrar;
  static constexpr bool touches_memory = false;  // these providers copy: they look at the memory at the first transfer
  static constexpr const char* counted = nullptr;

  provider_rig() {
    const auto begin = [this] {
      if (!offered_by(Provider)) GTEST_SKIP() << "libfabric has no provider " << Provider << " here";
      here = std::make_unique<node>(Provider);
    };
    begin();
  }
  [[nodiscard]] registrar_type make() const { return here->registrar(); }

  std::unique_ptr<node> here;
};

constexpr char tcp[] = "tcp;ofi_rxm";
constexpr char sockets[] = "sockets";
constexpr char udp[] = "udp;ofi_rxd";
constexpr char shm[] = "shm";
using rigs = ::testing::Types<provider_rig<tcp>, provider_rig<sockets>, provider_rig<udp>, provider_rig<shm>>;
INSTANTIATE_TYPED_TEST_SUITE_P(libfabric, registrar_suite, rigs);

template <class Rig>
class libfabric_keys_of : public ::testing::Test {
 protected:
  Rig rig;
};
TYPED_TEST_SUITE(libfabric_keys_of, rigs);

TYPED_TEST(libfabric_keys_of, keys_are_unique_across_threads_and_registrars) {
  auto first = this->rig.make();
  auto second = this->rig.make();
  const test_pages memory(4);
  std::mutex mutex;
  std::set<std::uint64_t> keys;
  const auto work = [&](libfabric_registrar& registrar) {
    std::vector<libfabric_registrar::registration_type> made;
    for (int i = 0; i < 200; ++i) {
      auto one = registrar.open(memory.pages(0, 1), local_access | access_flags::remote_write);
      ASSERT_TRUE(one) << describe(one.error());
      made.push_back(*one);
      const std::lock_guard lock(mutex);
      ASSERT_TRUE(keys.insert(one->key).second) << one->key;
    }
    for (const auto& one : made) {
      {
        const std::lock_guard lock(mutex);
        keys.erase(one.key);  // before the close: other threads may get the key from then on
      }
      ASSERT_TRUE(registrar.close(one));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&, t] { work(t % 2 == 0 ? first : second); });
  }
  EXPECT_TRUE(keys.empty());
}

TYPED_TEST(libfabric_keys_of, two_registrars_with_the_same_first_key_do_not_collide) {
  auto first = this->rig.here->registrar({.first_key = 1000});
  auto second = this->rig.here->registrar({.first_key = 1000});
  const test_pages memory(1);
  auto one = first.open(memory.pages(0, 1), local_access);
  auto other = second.open(memory.pages(0, 1), local_access);
  ASSERT_TRUE(one) << describe(one.error());
  ASSERT_TRUE(other) << describe(other.error());
  EXPECT_NE(one->key, other->key);
  EXPECT_TRUE(first.close(*one));
  EXPECT_TRUE(second.close(*other));
}

}  // namespace
}  // namespace pinfold::testing::libfabric_registrar_test
