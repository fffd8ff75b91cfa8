// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/density_classes.hpp"
#include "trace/replay/lru.hpp"
#include "trace/replay/offline.hpp"
#include "trace/replay/policy.hpp"
#include "trace/replay/second_chance.hpp"
#include "trace/replay/sieve.hpp"

#include <array>

namespace tool {
namespace {

template <class P>
std::unique_ptr<policy> make(const workload& of) {
  return std::make_unique<P>(of);
}

constexpr std::array policies{
    known_policy{"lru", "true least recently used", make<lru>},
    known_policy{"second-chance", "CLOCK in batches, as the cache implements it", make<second_chance>},
    known_policy{"sieve", "SIEVE", make<sieve>},
    known_policy{"classes-2", "GreedyDual-Size by powers of two, with frequencies up to 2", make<density_classes>},
    known_policy{"offline", "knows the future", make<offline>},
};

}  // namespace

std::span<const known_policy> all_policies() noexcept { return policies; }

}  // namespace tool
