// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"
#include "support/test_ring.hpp"

#include <list>

namespace pinfold::testing {
namespace {

struct io_uring_rig {
  using registrar_type = io_uring_registrar;
  static constexpr bool touches_memory = true;
  registrar_type make() { return std::move(*io_uring_registrar::create(rings.emplace_back().get())); }
  std::list<test_ring> rings;
};

INSTANTIATE_TYPED_TEST_SUITE_P(io_uring, registrar_suite, io_uring_rig);

}  // namespace
}  // namespace pinfold::testing
