// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random histories of an import cache: its setup, and the operations on it step by step.
#pragma once

#include "model/agreement.hpp"

#include <pinfold/options.hpp>

#include <rapidcheck.h>

#include <cstdint>
#include <ostream>
#include <vector>

namespace pinfold::testing {

enum class kind : std::uint8_t {
  acquire,
  release,
  release_elsewhere,
  find,
  allocate,
  invalidate,
  kill,
  drop,
  fail_opens,
  fail_closes,
  progress,
  flush,
  count_,
};

/// One step. Its numbers are interpreted by the state at that time, so every history is a legal one.
struct step {
  kind what = kind::acquire;
  std::uint32_t a = 0;
  std::uint32_t b = 0;

  friend std::ostream& operator<<(std::ostream& out, const step& s) {
    static constexpr const char* names[] = {
        "acquire", "release", "release_elsewhere", "find",        "allocate", "invalidate",
        "kill",    "drop",    "fail_opens",        "fail_closes", "progress", "flush"};
    return out << names[static_cast<int>(s.what)] << '(' << s.a << ',' << s.b << ')';
  }
};

struct setup {
  cache_options options;
  std::size_t capacity = SIZE_MAX;

  friend std::ostream& operator<<(std::ostream& out, const setup& s) {
    return out << (s.options.retain ? "retain" : "no-retain") << " max_bytes=" << s.options.max_bytes
               << " max_count=" << s.options.max_count << " full=" << static_cast<int>(s.options.full)
               << " closes=" << static_cast<int>(s.options.closes) << " capacity=" << s.capacity;
  }
};

}  // namespace pinfold::testing

namespace rc {

template <>
struct Arbitrary<pinfold::testing::step> {
  static Gen<pinfold::testing::step> arbitrary() {
    using pinfold::testing::kind;
    using pinfold::testing::step;
    const auto kinds = gen::weightedElement<kind>({{30, kind::acquire},
                                                   {20, kind::release},
                                                   {1, kind::release_elsewhere},
                                                   {5, kind::find},
                                                   {12, kind::allocate},
                                                   {4, kind::invalidate},
                                                   {1, kind::kill},
                                                   {2, kind::drop},
                                                   {3, kind::fail_opens},
                                                   {3, kind::fail_closes},
                                                   {2, kind::progress},
                                                   {2, kind::flush}});
    const auto number = gen::inRange<std::uint32_t>(0, 1U << 16U);
    return gen::build<step>(gen::set(&step::what, kinds), gen::set(&step::a, number), gen::set(&step::b, number));
  }
};

template <>
struct Arbitrary<pinfold::testing::setup> {
  static Gen<pinfold::testing::setup> arbitrary() {
    return gen::exec([] {
      using namespace pinfold;
      pinfold::testing::setup made;
      made.options.retain = *gen::arbitrary<bool>();
      made.options.max_count = *gen::elementOf(std::vector<std::size_t>{unlimited, unlimited, 1, 3, 5});
      made.options.max_bytes = *gen::elementOf(std::vector<std::size_t>{unlimited, unlimited, 192, 512});
      made.options.full = *gen::element(when_full::fail, when_full::bypass);
      made.options.closes = *gen::element(close_policy::immediate, close_policy::deferred);
      made.capacity = *gen::elementOf(std::vector<std::size_t>{SIZE_MAX, SIZE_MAX, 2, 4});
      return made;
    });
  }
};

}  // namespace rc
