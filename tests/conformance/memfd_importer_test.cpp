// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/importer_suite.hpp"
#include "support/processes/exporter_peer.hpp"

namespace pinfold::testing::memfd_importer_test {

template <memfd_via via, memfd_access access>
struct memfd_rig {
  using importer_type = memfd_importer;
  importer_type make_importer() { return memfd_importer({.via = via, .access = access}); }
  memfd_handle allocate(std::size_t bytes, std::uint32_t seed) { return exporter.allocate(bytes, seed); }
  void free(const memfd_handle& allocation) { exporter.free(allocation); }
  void end_exporter() {
    exporter.process().kill();
    exporter.process().reap();
  }
  bool holds(const void* data, std::size_t bytes, std::uint32_t seed) { return holds_pattern(data, bytes, seed); }

  exporter_peer exporter{{.access = access, .serve = via == memfd_via::scm}};
};

using memfd_rigs = ::testing::Types<memfd_rig<memfd_via::pidfd, memfd_access::read_only>,
                                    memfd_rig<memfd_via::scm, memfd_access::read_only>,
                                    memfd_rig<memfd_via::automatic, memfd_access::read_write>>;
INSTANTIATE_TYPED_TEST_SUITE_P(memfd, importer_suite, memfd_rigs);

}  // namespace pinfold::testing::memfd_importer_test
