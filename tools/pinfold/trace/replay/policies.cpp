// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/policies.hpp"

#include "trace/replay/at_random.hpp"
#include "trace/replay/cost_clock.hpp"
#include "trace/replay/density_classes.hpp"
#include "trace/replay/fifo.hpp"
#include "trace/replay/greedy_dual.hpp"
#include "trace/replay/lazy_greedy_dual.hpp"
#include "trace/replay/lru.hpp"
#include "trace/replay/offline.hpp"
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

template <unsigned MostUses>
std::unique_ptr<policy> make_lazy(const workload& of) {
  return std::make_unique<lazy_greedy_dual>(of, MostUses);
}

template <unsigned MostSteps>
std::unique_ptr<policy> make_classes(const workload& of) {
  return std::make_unique<density_classes>(of, MostSteps);
}

constexpr std::array policies{
    known_policy{"lru", "true least recently used", make<lru>},
    known_policy{"second-chance", "CLOCK in batches, as the cache implements it", make<second_chance>},
    known_policy{"clock-single", "CLOCK, one victim at a time",
                 [](const workload& of) -> std::unique_ptr<policy> { return std::make_unique<second_chance>(of, 1); }},
    known_policy{"sieve", "SIEVE", make<sieve>},
    known_policy{"fifo", "first in, first out", make<fifo>},
    known_policy{"random", "any entry", make<at_random>},
    known_policy{"gds", "GreedyDual-Size", make_greedy_dual<false>},
    known_policy{"gdsf", "GreedyDual-Size with frequencies", make_greedy_dual<true>},
    known_policy{"cost-clock", "CLOCK with rounds by cost", make<cost_clock>},
    known_policy{"lazy-gds", "GreedyDual-Size that writes one bit at a hit", make_lazy<1>},
    known_policy{"lazy-gdsf-2", "the same, with frequencies up to 2", make_lazy<2>},
    known_policy{"lazy-gdsf-4", "the same, with frequencies up to 4", make_lazy<4>},
    known_policy{"classes", "lazy-gds by powers of two, without a heap", make_classes<0>},
    known_policy{"classes-2", "lazy-gdsf-2 in the same way", make_classes<1>},
    known_policy{"classes-4", "lazy-gdsf-4 in the same way", make_classes<2>},
    known_policy{"offline", "knows the future", make<offline>},
};

}  // namespace

std::span<const known_policy> all_policies() noexcept { return policies; }

}  // namespace tool
