// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"
#include "support/fixtures/cuda_here.hpp"

#include <pinfold/registrars/cuda_host.hpp>

namespace pinfold::testing::cuda_registrars_test {
namespace {

template <bool ReadOnly>
struct cuda_host_rig {
  using registrar_type = cuda_host_registrar;
  static constexpr bool touches_memory = true;
  static constexpr bool overlaps = false;
  static constexpr const char* counted = nullptr;
  registrar_type make() { return cuda_host_registrar({.read_only = ReadOnly}); }
};

using rigs = ::testing::Types<cuda_host_rig<false>, cuda_host_rig<true>>;
INSTANTIATE_TYPED_TEST_SUITE_P(cuda_host, registrar_suite, rigs);

}  // namespace
}  // namespace pinfold::testing::cuda_registrars_test
