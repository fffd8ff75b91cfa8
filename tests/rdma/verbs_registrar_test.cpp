// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"
#include "rdma/pair.hpp"

namespace pinfold::testing::verbs_registrar_test {
namespace {

struct verbs_rig : pinning_rig {
  using registrar_type = verbs_registrar;
  registrar_type make() { return device.registrar(); }
  rdma_device device;
};

INSTANTIATE_TYPED_TEST_SUITE_P(verbs, registrar_suite, verbs_rig);

}  // namespace
}  // namespace pinfold::testing::verbs_registrar_test
