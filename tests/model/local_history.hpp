// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random histories of a cache of local memory: its setup, and the operations on it step by step.
#pragma once

#include "support/fixtures/local_fixture.hpp"

#include <pinfold/options.hpp>

#include <rapidcheck.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace pinfold::testing {

enum class local_kind : std::uint8_t {
  acquire,
  persistent,
  bypass,
  batch,
  release,
  release_elsewhere,
  find,
  invalidate,
  announce,
  unpersist,
  fail_opens,
  fail_closes,
  refuse_unions,
  progress,
  flush,
};

struct local_step {
  local_kind what = local_kind::acquire;
  std::uint32_t a = 0;
  std::uint32_t b = 0;

  friend std::ostream& operator<<(std::ostream& out, const local_step& s) {
    static constexpr const char* names[] = {"acquire",       "persistent",        "bypass",     "batch",
                                            "release",       "release_elsewhere", "find",       "invalidate",
                                            "announce",      "unpersist",         "fail_opens", "fail_closes",
                                            "refuse_unions", "progress",          "flush"};
    return out << names[static_cast<int>(s.what)] << '(' << s.a << ',' << s.b << ')';
  }
};

struct local_setup {
  cache_options options;
  std::size_t capacity = SIZE_MAX;

  friend std::ostream& operator<<(std::ostream& out, const local_setup& s) {
    return out << to_line(s.options) << " capacity=" << s.capacity;
  }
  static std::string to_line(const cache_options& o) {
    return std::string(o.retain ? "retain" : "no-retain") + " max_bytes=" + std::to_string(o.max_bytes) +
           " max_count=" + std::to_string(o.max_count) + " full=" + std::to_string(static_cast<int>(o.full)) +
           " closes=" + std::to_string(static_cast<int>(o.closes));
  }
};

}  // namespace pinfold::testing

namespace rc {

template <>
struct Arbitrary<pinfold::testing::local_step> {
  static Gen<pinfold::testing::local_step> arbitrary() {
    using enum pinfold::testing::local_kind;
    using pinfold::testing::local_kind;
    using pinfold::testing::local_step;
    const auto kinds = gen::weightedElement<local_kind>({{30, acquire},
                                                         {2, persistent},
                                                         {3, bypass},
                                                         {4, batch},
                                                         {22, release},
                                                         {1, release_elsewhere},
                                                         {5, find},
                                                         {4, invalidate},
                                                         {3, announce},
                                                         {2, unpersist},
                                                         {3, fail_opens},
                                                         {3, fail_closes},
                                                         {1, refuse_unions},
                                                         {2, progress},
                                                         {2, flush}});
    const auto number = gen::inRange<std::uint32_t>(0, 1U << 16U);
    return gen::build<local_step>(gen::set(&local_step::what, kinds), gen::set(&local_step::a, number),
                                  gen::set(&local_step::b, number));
  }
};

template <>
struct Arbitrary<pinfold::testing::local_setup> {
  static Gen<pinfold::testing::local_setup> arbitrary() {
    return gen::exec([] {
      using namespace pinfold;
      pinfold::testing::local_setup made;
      made.options = pinfold::testing::keeping();
      made.options.retain = *gen::weightedElement<bool>({{3, true}, {1, false}});
      made.options.max_count = *gen::elementOf(std::vector<std::size_t>{unlimited, unlimited, 2, 4});
      made.options.max_bytes = *gen::elementOf(std::vector<std::size_t>{unlimited, unlimited, 100, 300});
      made.options.full = *gen::element(when_full::fail, when_full::bypass);
      made.options.closes = *gen::element(close_policy::immediate, close_policy::deferred);
      made.capacity = *gen::elementOf(std::vector<std::size_t>{SIZE_MAX, SIZE_MAX, 2, 4});
      return made;
    });
  }
};

}  // namespace rc
