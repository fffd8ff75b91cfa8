// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"
#include "support/doubles/through_c.hpp"

#include <pinfold/registrars/fallback.hpp>
#include <pinfold/registrars/mlock.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/registrars/trace.hpp>

#include <utility>
#include <vector>

namespace pinfold::testing::simple_registrars_test {
namespace {

struct null_rig {
  using registrar_type = null_registrar;
  static constexpr bool touches_memory = false;
  static constexpr const char* counted = nullptr;
  registrar_type make() { return {}; }
};

struct mlock_rig {
  using registrar_type = mlock_registrar;
  static constexpr bool touches_memory = true;
  static constexpr const char* counted = "VmLck";
  registrar_type make() { return {}; }
};

struct trace_rig {
  using registrar_type = trace_registrar<mlock_registrar>;
  static constexpr bool touches_memory = true;
  static constexpr const char* counted = "VmLck";
  registrar_type make() {
    return {mlock_registrar(), [](const traced_call&) {}};
  }
};

// The second step serves: the first refuses everything.
struct fallback_rig {
  using made_type = mlock_registrar::registration_type;
  using registrar_type = fallback_registrar<made_type>;
  static constexpr bool touches_memory = true;
  static constexpr const char* counted = "VmLck";
  registrar_type make() {
    std::vector<fallback_step<made_type>> steps;
    steps.push_back(as_step("none", mlock_registrar()));
    steps.back().open = [](const range&, access_flags) -> result<opened_by_step<made_type>> {
      return fail(errc::unsupported, "this step registers nothing");
    };
    steps.push_back(as_step("mlock", mlock_registrar()));
    return *registrar_type::create(std::move(steps));
  }
};

struct c_null_rig : null_rig {
  using interface = through_c;
};
struct c_mlock_rig : mlock_rig {
  using interface = through_c;
};

using rigs = ::testing::Types<null_rig, mlock_rig, trace_rig, fallback_rig, c_null_rig, c_mlock_rig>;
INSTANTIATE_TYPED_TEST_SUITE_P(simple, registrar_suite, rigs);

}  // namespace
}  // namespace pinfold::testing::simple_registrars_test
