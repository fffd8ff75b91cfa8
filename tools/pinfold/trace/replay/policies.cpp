// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/density_classes.hpp"
#include "trace/replay/greedy_dual.hpp"
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

template <bool Frequencies>
std::unique_ptr<policy> make_greedy_dual(const workload& of) {
  return std::make_unique<greedy_dual>(of, Frequencies);
}

template <unsigned MostSteps>
std::unique_ptr<policy> make_classes(const workload& of) {
  return std::make_unique<density_classes>(of, MostSteps);
}

constexpr std::array policies{
    known_policy{"lru", "true least recently used", make<lru>},
    known_policy{"second-chance", "CLOCK in batches, as the cache implements it", make<second_chance>},
    known_policy{"sieve", "SIEVE", make<sieve>},
    known_policy{"gds", "GreedyDual-Size", make_greedy_dual<false>},
    known_policy{"gdsf", "GreedyDual-Size with frequencies", make_greedy_dual<true>},
    known_policy{"classes", "GreedyDual-Size by powers of two, one bit at a hit", make_classes<0>},
    known_policy{"classes-2", "the same, with frequencies up to 2", make_classes<1>},
    known_policy{"classes-4", "the same, with frequencies up to 4", make_classes<2>},
    known_policy{"offline", "knows the future", make<offline>},
};

}  // namespace

std::span<const known_policy> all_policies() noexcept { return policies; }

}  // namespace tool
