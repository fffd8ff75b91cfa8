// SPDX-License-Identifier: BSD-3-Clause
// Every call of libfabric that a cache makes fails, in every way: over a domain of no provider, which has all the
// calls, and over a real one.
#include "fabric/fake_domain.hpp"
#include "fabric/node.hpp"
#include "fabric/watched_domain.hpp"
#include "support/doubles/through_c.hpp"
#include "support/fixtures/local_faults.hpp"

#include <string_view>

namespace pinfold::testing::libfabric_faults_test {
namespace {

using std::string_view_literals::operator""sv;

const std::vector<int> codes{FI_ENOMEM, FI_EINVAL, FI_EIO,        FI_EBUSY,  FI_EAGAIN,      FI_EACCES,
                             FI_EFAULT, FI_ENODEV, FI_EOPNOTSUPP, FI_ENOKEY, FI_EKEYREJECTED};

// Failures that the cache does not report: a region that the provider may have freed counts as closed, and a taken key
// is replaced by another.
bool nobody_is_told(std::string_view call, int code) {
  return call == "fi_close"sv ? !fake_domain::stays_open(code) : code == FI_ENOKEY;
}

struct fake_driver {
  explicit fake_driver(int mr_mode) : domain(mr_mode), faults(domain.faults) {}

  static constexpr native_kind kind = native_kind::libfabric;
  libfabric_registrar registrar() { return domain.registrar({.endpoint = &endpoint}); }
  [[nodiscard]] std::size_t open_count() const { return domain.regions.size(); }
  [[nodiscard]] std::size_t misuses() const { return static_cast<std::size_t>(domain.misuses); }
  static bool hidden(std::string_view call, int code) { return nobody_is_told(call, code); }

  fake_domain domain;
  fault_points& faults;
  ::fid_ep endpoint{};
};

TEST(libfabric_faults, R10_R41_faults_of_endpoint_regions_leak_nothing) {
  fake_driver driver(FI_MR_ENDPOINT);
  expect_survival(driver, {"fi_mr_regattr", "fi_mr_bind", "fi_mr_enable", "fi_close"}, codes);
}
TEST(libfabric_faults, R10_R41_faults_of_regions_with_provider_keys_leak_nothing) {
  fake_driver driver(FI_MR_PROV_KEY | FI_MR_ENDPOINT);
  expect_survival(driver, {"fi_mr_regattr", "fi_mr_bind", "fi_mr_enable", "fi_close"}, codes);
}

struct real_driver {
  static constexpr native_kind kind = native_kind::libfabric;
  [[nodiscard]] libfabric_registrar registrar() const { return here.registrar(); }
  [[nodiscard]] std::size_t open_count() const { return domain.open_count(); }
  static std::size_t misuses() { return 0; }  // the provider would crash
  static bool hidden(std::string_view call, int code) { return nobody_is_told(call, code); }

  node here{"tcp;ofi_rxm"};
  watched_domain domain{here.domain()};
  fault_points& faults{domain.faults};
};

TEST(libfabric_faults, R10_R41_faults_reach_callers_of_the_C_interface) {
  fake_driver driver(FI_MR_ENDPOINT);
  expect_survival<through_c>(driver, {"fi_mr_regattr", "fi_mr_bind", "fi_mr_enable", "fi_close"}, codes);
}

TEST(libfabric_faults, R10_R41_faults_over_a_real_provider_leak_nothing) {
  if (!offered_by("tcp;ofi_rxm")) GTEST_SKIP() << "libfabric has no provider tcp;ofi_rxm here";
  real_driver driver;
  expect_survival(driver, {"fi_mr_regattr", "fi_close"}, codes);
}

}  // namespace
}  // namespace pinfold::testing::libfabric_faults_test
