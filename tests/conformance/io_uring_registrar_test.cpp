// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"
#include "support/doubles/test_ring.hpp"
#include "support/doubles/through_c.hpp"

#include <pinfold/registrars/trace.hpp>

#include <list>

namespace pinfold::testing::io_uring_registrar_test {
namespace {

struct io_uring_rig : pinning_rig {
  using registrar_type = io_uring_registrar;
  registrar_type make() { return std::move(*io_uring_registrar::create(rings.emplace_back().get())); }
  std::list<test_ring> rings;
};

struct traced_io_uring_rig : pinning_rig {
  using registrar_type = trace_registrar<io_uring_registrar>;
  registrar_type make() { return {inner.make(), nullptr}; }
  io_uring_rig inner;
};

struct c_io_uring_rig : io_uring_rig {
  using interface = through_c;
};

using rigs = ::testing::Types<io_uring_rig, traced_io_uring_rig, c_io_uring_rig>;
INSTANTIATE_TYPED_TEST_SUITE_P(io_uring, registrar_suite, rigs);

}  // namespace
}  // namespace pinfold::testing::io_uring_registrar_test
