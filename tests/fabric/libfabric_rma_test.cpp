// SPDX-License-Identifier: BSD-3-Clause
// Bytes that one end puts into, and gets from, the memory of another by the key and address of a lease.
#include "fabric/node.hpp"
#include "support/host/sanitized.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/registrars/libfabric.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <vector>

namespace pinfold::testing::libfabric_rma_test {
namespace {

using std::string_view_literals::operator""sv;

using cache_type = pinfold::cache<libfabric_registrar>;
constexpr auto for_peers = local_access | access_flags::remote_read | access_flags::remote_write;

class libfabric_rma : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!offered_by(GetParam())) GTEST_SKIP() << "libfabric has no provider " << GetParam() << " here";
    if (thread_sanitized && GetParam() == "sockets"sv)
      GTEST_SKIP() << "the provider's thread copies, and ThreadSanitizer does not see when it is done";
    nodes = std::make_unique<node_pair>(GetParam());
    near = std::make_unique<cache_type>(nodes->near.registrar(), options());
    far = std::make_unique<cache_type>(nodes->far.registrar(), options());
  }
  void TearDown() override {
    near.reset();
    far.reset();
    nodes.reset();
  }
  static cache_options options() {
    cache_options keeping;
    keeping.monitor = monitor_choice::manual;
    return keeping;
  }

  /// Puts, from memory of the near end that its cache registers, to `to` of the far end by the lease on it.
  int put(const std::vector<char>& bytes, const lease<libfabric_registrar>& theirs, const void* to) {
    auto mine = near->acquire(bytes.data(), bytes.size(), access_flags::local_read);
    if (!mine) throw std::runtime_error(describe(mine.error()));
    const auto target = theirs.registration();
    return nodes->put(bytes.data(), bytes.size(), mine->registration().desc, target.peer_address(to), target.key);
  }
  int get(std::vector<char>& into, const lease<libfabric_registrar>& theirs, const void* from) {
    auto mine = near->acquire(into.data(), into.size());
    if (!mine) throw std::runtime_error(describe(mine.error()));
    const auto source = theirs.registration();
    return nodes->get(into.data(), into.size(), mine->registration().desc, source.peer_address(from), source.key);
  }

  /// Returns whether a put of 'n's is refused. udp and shm do not answer what they refuse, so the timeout is short.
  bool refuses(std::size_t bytes, std::uint64_t peer_address, std::uint64_t key) {
    late_.assign(bytes, 'n');
    auto mine = near->acquire(late_.data(), bytes, access_flags::local_read);
    if (!mine) throw std::runtime_error(describe(mine.error()));
    nodes->timeout = std::chrono::seconds(1);
    return nodes->put(late_.data(), bytes, mine->registration().desc, peer_address, key) != 0;
  }
  bool refuses(std::size_t bytes, const lease<libfabric_registrar>& theirs, const void* to) {
    return refuses(bytes, theirs.registration().peer_address(to), theirs.registration().key);
  }

  std::vector<char> late_;  // outlives the endpoints, which may still send from it
  std::unique_ptr<node_pair> nodes;
  std::unique_ptr<cache_type> near, far;
};

std::vector<char> numbered(std::size_t bytes, unsigned seed) {
  std::vector<char> made(bytes);
  for (auto& one : made) one = static_cast<char>((seed = seed * 1103515245 + 12345) >> 16U);
  return made;
}

TEST_P(libfabric_rma, puts_and_gets_transfer_the_right_bytes) {
  for (const std::size_t bytes : {1UL, 4096UL, 100'001UL, 1UL << 20U}) {
    const auto sent = numbered(bytes, 5);
    std::vector<char> there(bytes, 'o');
    std::vector<char> back(bytes, 'x');
    auto theirs = far->acquire(there.data(), bytes, for_peers);
    ASSERT_TRUE(theirs) << describe(theirs.error());
    ASSERT_EQ(put(sent, *theirs, there.data()), 0);
    EXPECT_EQ(there, sent) << bytes;
    std::ranges::reverse(there);
    ASSERT_EQ(get(back, *theirs, there.data()), 0);
    EXPECT_EQ(back, there) << bytes;
  }
}

TEST_P(libfabric_rma, a_hit_inside_a_larger_registration_reaches_its_own_bytes) {
  std::vector<char> there(65536, 'o');
  auto whole = far->acquire(there.data(), there.size(), for_peers);
  auto part = far->acquire(there.data() + 5000, 3000, for_peers);
  ASSERT_TRUE(whole && part);
  ASSERT_EQ(far->statistics().opens, 1U) << "or else this shows nothing";
  const auto sent = numbered(3000, 9);
  ASSERT_EQ(put(sent, *part, there.data() + 5000), 0);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), there.begin() + 5000));
  EXPECT_EQ(std::count(there.begin(), there.begin() + 5000, 'o'), 5000);
  EXPECT_EQ(std::count(there.begin() + 8000, there.end(), 'o'), 65536 - 8000);
}

TEST_P(libfabric_rma, memory_of_a_pool_is_transferred_without_another_registration) {
  constexpr std::size_t bytes = 65536;
  std::vector<char> there(bytes, 'o');
  auto theirs = far->acquire(there.data(), bytes, for_peers);
  registered_pool pool(*near);
  const auto own = pool.allocate_registered(bytes);
  ASSERT_TRUE(theirs && own);
  const auto sent = numbered(bytes, 7);
  std::ranges::copy(sent, static_cast<char*>(own->data));
  const auto target = theirs->registration();
  const auto where = target.peer_address(there.data());
  ASSERT_EQ(nodes->put(own->data, bytes, own->registration.desc, where, target.key), 0);
  EXPECT_EQ(there, sent);
  std::ranges::reverse(there);
  ASSERT_EQ(nodes->get(own->data, bytes, own->registration.desc, where, target.key), 0);
  EXPECT_EQ(std::memcmp(own->data, there.data(), bytes), 0);
  EXPECT_EQ(near->statistics().opens, 1U);
  ASSERT_TRUE(pool.try_deallocate(own->data, bytes));
}

TEST_P(libfabric_rma, R24_peer_reaches_only_the_registered_bytes) {
  std::vector<char> there(4096, 'o');
  auto theirs = far->acquire(there.data() + 1000, 100, for_peers);
  ASSERT_TRUE(theirs);
  ASSERT_EQ(put(numbered(100, 1), *theirs, there.data() + 1000), 0);
  EXPECT_TRUE(refuses(101, *theirs, there.data() + 1000)) << "one byte beyond";
  EXPECT_EQ(there[1100], 'o');
  EXPECT_EQ(there[999], 'o');
}

TEST_P(libfabric_rma, a_peer_without_the_right_is_refused) {
  std::vector<char> there(4096, 'o');
  auto theirs = far->acquire(there.data(), there.size(), local_access | access_flags::remote_read);
  ASSERT_TRUE(theirs);
  EXPECT_TRUE(refuses(4096, *theirs, there.data()));
  EXPECT_EQ(std::count(there.begin(), there.end(), 'o'), 4096);
}

TEST_P(libfabric_rma, key_of_a_closed_registration_reaches_nothing) {
  std::vector<char> there(4096, 'o');
  std::vector<char> other(4096, 'o');
  auto theirs = far->acquire(there.data(), there.size(), for_peers);
  ASSERT_TRUE(theirs);
  const auto old = theirs->registration();
  ASSERT_EQ(put(numbered(4096, 2), *theirs, there.data()), 0);
  std::ranges::fill(there, 'o');
  ASSERT_TRUE(theirs->release());
  ASSERT_TRUE(far->flush());
  auto next = far->acquire(other.data(), other.size(), for_peers);
  ASSERT_TRUE(next);
  EXPECT_NE(next->registration().key, old.key);
  EXPECT_TRUE(refuses(4096, old.peer_address(there.data()), old.key));
  EXPECT_EQ(std::count(there.begin(), there.end(), 'o'), 4096);
  EXPECT_EQ(std::count(other.begin(), other.end(), 'o'), 4096);
}

// docs/use/registrars.md on providers that copy: they look up the address when the bytes come. A provider that pins
// (FI_MR_ALLOCATED) would put the bytes into the old pages.
TEST_P(libfabric_rma, provider_without_pinning_has_no_stale_registrations) {
  if (nodes->far.registrar().rules().allocated) GTEST_SKIP() << "this provider pins";
  constexpr std::size_t bytes = 65536;
  void* const place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  std::memset(place, 'o', bytes);
  auto theirs = far->acquire(place, bytes, for_peers);
  ASSERT_TRUE(theirs);
  ASSERT_EQ(::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), place);
  const auto sent = numbered(bytes, 3);
  ASSERT_EQ(put(sent, *theirs, place), 0);
  EXPECT_EQ(std::memcmp(place, sent.data(), bytes), 0);
  ASSERT_TRUE(theirs->release());
  ASSERT_TRUE(far->flush());
  ::munmap(place, bytes);
}

std::string provider_of(const ::testing::TestParamInfo<const char*>& which) {
  const std::string name = which.param;
  return name.substr(0, name.find(';'));
}
INSTANTIATE_TEST_SUITE_P(over, libfabric_rma, ::testing::Values("tcp;ofi_rxm", "sockets", "udp;ofi_rxd", "shm"),
                         provider_of);

}  // namespace
}  // namespace pinfold::testing::libfabric_rma_test
