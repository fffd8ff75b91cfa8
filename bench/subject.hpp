// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface of a measured cache, and the one loop that measures all of them.
#pragma once

#include "workload.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {

/// The setup of a subject.
struct setup {
  std::size_t most = SIZE_MAX;                    ///< most registrations that are open at a time
  unsigned threads = 1;                           ///< threads that will use it at the same time, where there is a limit
  std::chrono::milliseconds register_delay{0};    ///< the time of each registration
  std::chrono::milliseconds deregister_delay{0};  ///< the time of each deregistration
  std::string monitors = "manual";                ///< PINFOLD_MONITOR, for pinfold
};

/// Thrown where there can be no figure, as by the constructor of a subject that is known not to survive that setup.
struct cannot_be_measured : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One thread's use of a subject. `key` reads the 8 bytes that registering stored in what `get` returns: never 0,
/// unless the request failed.
template <class User>
concept user_of_cache = requires(User& user, const request& wanted) {
  { user.key(user.get(wanted)) } -> std::same_as<std::uint64_t>;
  requires requires(decltype(user.get(wanted))& held) { user.put(held); };
};

/// A user that can also mark what it holds as not to be kept, so that its last `put` deregisters.
template <class User>
concept forgetting_user = user_of_cache<User> && requires(User& user, const request& wanted) {
  requires requires(decltype(user.get(wanted))& held) { user.forget(held); };
};

/// A cache. Its users may work at the same time.
template <class Subject>
concept subject = std::constructible_from<Subject, const region_set&, const setup&> && requires(Subject& cache) {
  { Subject::name } -> std::convertible_to<const char*>;
  { cache.user() } -> user_of_cache;
};

/// A cache that counts its registrations.
template <class Subject>
concept counting_subject = subject<Subject> && requires(Subject& cache) {
  { cache.registrations() } -> std::convertible_to<std::uint64_t>;
};

/// A cache that counts its registrations and deregistrations.
template <class Subject>
concept unmapping_subject = counting_subject<Subject> && requires(Subject& cache) {
  { cache.deregistrations() } -> std::convertible_to<std::uint64_t>;
};

/// Reads every result, so that the compiler cannot leave anything out.
struct tally {
  std::uint64_t sum = 0;
  std::uint64_t errors = 0;
  std::uint64_t operations = 0;

  void add(std::uint64_t key) noexcept {
    sum += key;
    errors += key == 0 ? 1U : 0U;
    ++operations;
  }
  void add(const tally& other) noexcept {
    sum += other.sum;
    errors += other.errors;
    operations += other.operations;
  }
};

/// Requests in turn, again and again. Their number is a power of two.
class request_ring {
 public:
  explicit request_ring(const requests& all) noexcept : all_(all.data()), mask_(all.size() - 1) {}
  [[nodiscard]] const request& next() noexcept { return all_[at_++ & mask_]; }
  /// Returns the next requests that are contiguous: at least one and at most `at_most`.
  [[nodiscard]] std::span<const request> row(std::uint64_t at_most) noexcept {
    const auto first = at_ & mask_;
    const auto count = std::min<std::uint64_t>(at_most, mask_ + 1 - first);
    at_ += count;
    return {all_ + first, count};
  }

 private:
  const request* all_;
  std::size_t mask_;
  std::size_t at_ = 0;
};

/// Makes each request of a list once. One operation is a get and a put.
template <class User>
[[gnu::noinline]] void use_each(User& user, const request* first, const request* last, tally& seen) {
  tally counted;
  for (; first != last; ++first) {
    auto held = user.get(*first);
    counted.add(user.key(held));
    user.put(held);
  }
  seen.add(counted);
}

/// Makes that many operations.
template <class User>
void use(User& user, request_ring& ring, std::uint64_t operations, tally& seen) {
  while (operations > 0) {
    const auto wanted = ring.row(operations);
    use_each(user, wanted.data(), wanted.data() + wanted.size(), seen);
    operations -= wanted.size();
  }
}

/// Thrown when a subject takes too long with that many regions to wait for it.
struct out_of_time : cannot_be_measured {
  using cannot_be_measured::cannot_be_measured;
};

/// The end of a wait.
class deadline {
 public:
  explicit deadline(double seconds) : seconds_(seconds), end_(clock::now() + std::chrono::duration<double>(seconds)) {}

  [[nodiscard]] bool passed() const noexcept { return clock::now() > end_; }
  void check(std::size_t done, std::size_t all) const {
    if (!passed()) return;
    throw out_of_time("after " + std::to_string(std::lround(seconds_)) + " s only " + std::to_string(done) + " of " +
                      std::to_string(all) + " regions were cached");
  }

 private:
  using clock = std::chrono::steady_clock;
  double seconds_;
  std::chrono::time_point<clock, std::chrono::duration<double>> end_;
};

/// Makes each request once until that takes too long; returns how many it made.
template <class User>
std::size_t use_until(const deadline& end, User& user, const requests& all, tally& seen) {
  constexpr std::size_t at_a_time = 512;
  std::size_t done = 0;
  while (done < all.size() && !end.passed()) {
    const auto next = std::min(all.size(), done + at_a_time);
    use_each(user, all.data() + done, all.data() + next, seen);
    done = next;
  }
  return done;
}

/// Puts every region into the cache, or each of the caches: in random order, or in order, which is fastest. Throws
/// `out_of_time`.
template <class Subject>
void fill(Subject& cache, const region_set& regions, double time_limit, tally& seen, bool shuffled = true) {
  if constexpr (requires { cache.each_cache([](auto&) {}); }) {
    cache.each_cache([&](auto& one) { fill(one, regions, time_limit, seen, shuffled); });
    return;
  }
  const auto all = each_once(regions, shuffled);
  const deadline end(time_limit);
  auto user = cache.user();
  const auto done = use_until(end, user, all, seen);
  if (done < all.size()) end.check(done, all.size());
}

}  // namespace bench
