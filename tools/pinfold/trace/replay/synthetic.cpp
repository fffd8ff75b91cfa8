// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/synthetic.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>

namespace tool {
namespace {

constexpr std::size_t requests = 400'000;
constexpr std::size_t usual_bytes = std::size_t{64} * 1024;
constexpr double usual_skew = 0.99;  // as in the YCSB benchmark

// The standard's distributions differ between implementations.
class dice {
 public:
  explicit dice(std::uint64_t seed) : generator_(seed) {}
  double share() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }  // 0 to 1, 1 excluded
  std::size_t below(std::size_t most) { return static_cast<std::size_t>(share() * static_cast<double>(most)); }

 private:
  std::mt19937_64 generator_;
};

// Draws rank r in proportion to 1 / r^skew; the assignment of ranks to objects is shuffled.
class zipf {
 public:
  zipf(std::size_t objects, double skew, dice& chance) : ranks_(objects), at_most_(objects) {
    double sum = 0;
    for (std::size_t i = 0; i < objects; ++i) {
      ranks_[i] = static_cast<std::uint32_t>(i);
      at_most_[i] = sum += std::pow(static_cast<double>(i + 1), -skew);
    }
    shuffle(chance);
  }
  void shuffle(dice& chance) {
    for (auto left = ranks_.size(); left > 1; --left) std::swap(ranks_[left - 1], ranks_[chance.below(left)]);
  }
  std::uint32_t draw(dice& chance) const {
    const auto found = std::upper_bound(at_most_.begin(), at_most_.end(), chance.share() * at_most_.back());
    return ranks_[std::min<std::size_t>(static_cast<std::size_t>(found - at_most_.begin()), ranks_.size() - 1)];
  }

 private:
  std::vector<std::uint32_t> ranks_;
  std::vector<double> at_most_;
};

replay_object object_of(std::size_t bytes, const cost_model& costs) {
  return {bytes, bytes, costs.open_ns(bytes), costs.close_ns(bytes)};
}

workload alike(std::size_t objects, const cost_model& costs) {
  workload made;
  made.objects.assign(objects, object_of(usual_bytes, costs));
  made.requests.reserve(requests);
  return made;
}

workload make_zipf(const cost_model& costs, std::uint64_t seed) {
  dice chance(seed);
  auto made = alike(4096, costs);
  const zipf popular(made.objects.size(), usual_skew, chance);
  while (made.requests.size() < requests) made.requests.push_back(popular.draw(chance));
  return made;
}

// A hot set, and now and then one pass over all other objects, as a backup or a checkpoint makes it.
workload make_scan(const cost_model& costs, std::uint64_t seed) {
  constexpr std::size_t hot = 512;
  constexpr std::size_t between = 10'000;
  dice chance(seed);
  auto made = alike(4096, costs);
  const zipf popular(hot, usual_skew, chance);
  while (made.requests.size() < requests) {
    for (std::size_t i = 0; i < between; ++i) made.requests.push_back(popular.draw(chance));
    for (std::size_t i = hot; i < made.objects.size(); ++i) made.requests.push_back(static_cast<std::uint32_t>(i));
  }
  return made;
}

workload make_loop(const cost_model& costs, std::uint64_t /*seed*/) {
  auto made = alike(4096, costs);
  for (std::size_t i = 0; i < requests; ++i)
    made.requests.push_back(static_cast<std::uint32_t>(i % made.objects.size()));
  return made;
}

// The popular objects change now and then.
workload make_shift(const cost_model& costs, std::uint64_t seed) {
  constexpr std::size_t between = 20'000;
  dice chance(seed);
  auto made = alike(4096, costs);
  zipf popular(made.objects.size(), usual_skew, chance);
  while (made.requests.size() < requests) {
    if (made.requests.size() % between == 0) popular.shuffle(chance);
    made.requests.push_back(popular.draw(chance));
  }
  return made;
}

// Sizes from 4 KiB to 16 MiB, equally many of each power of two; size and popularity are independent.
workload of_many_sizes(dice& chance, const cost_model& small_pages, const cost_model& other_pages) {
  workload made;
  for (std::size_t i = 0; i < 4096; ++i) {
    const auto bytes = std::size_t{4096} << chance.below(13);
    const bool small = bytes < (std::size_t{2} << 20) || chance.share() < 0.5;
    made.objects.push_back(object_of(bytes, small ? small_pages : other_pages));
  }
  const zipf popular(made.objects.size(), usual_skew, chance);
  while (made.requests.size() < requests) made.requests.push_back(popular.draw(chance));
  return made;
}

workload make_mixed(const cost_model& costs, std::uint64_t seed) {
  dice chance(seed);
  return of_many_sizes(chance, costs, costs);
}

// The same, with half of the large enough objects on huge pages.
workload make_pages(const cost_model& costs, std::uint64_t seed) {
  dice chance(seed);
  return of_many_sizes(chance, costs, all_cost_models()[1]);
}

constexpr std::array workloads{
    synthetic_workload{"zipf", "64 KiB each, of unequal popularity", make_zipf},
    synthetic_workload{"scan", "a hot set, and passes over everything else", make_scan},
    synthetic_workload{"loop", "all in turn, repeatedly", make_loop},
    synthetic_workload{"shift", "as zipf, but the popular regions change", make_shift},
    synthetic_workload{"mixed", "as zipf, 4 KiB to 16 MiB", make_mixed},
    synthetic_workload{"pages", "as mixed, half of the large ones on huge pages", make_pages},
};

}  // namespace

std::span<const synthetic_workload> all_synthetic() noexcept { return workloads; }

}  // namespace tool
