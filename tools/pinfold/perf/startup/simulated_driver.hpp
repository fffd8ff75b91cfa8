// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A driver simulated at measured costs: its calls sleep for as long as a real driver's call would take.
#pragma once

#include "perf/startup/longest_time.hpp"

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/limits.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace tool {

/// What a call of the simulated driver costs.
struct simulated_costs {
  double ns_per_byte = 0;
  bool serialises = false;  ///< the driver works on one call at a time, as under a lock of its own
  double scale = 1;         ///< sleeps are shorter by this factor
  std::size_t max_bytes = pinfold::unlimited;

  /// Returns the time that the driver takes for so many bytes, in seconds, not scaled.
  [[nodiscard]] double seconds(std::size_t bytes) const noexcept {
    return static_cast<double>(bytes) * ns_per_byte * 1e-9;
  }
};

/// Registers nothing. Never touches the memory.
class simulated_registrar {
 public:
  static constexpr const char* name = "simulated";
  struct registration_type {
    std::uintptr_t key = 0;
  };

  explicit simulated_registrar(const simulated_costs& costs) : state_(std::make_unique<state>(costs)) {}

  [[nodiscard]] pinfold::registrar_limits limits() const noexcept {
    return {.granularity = 4096, .max_bytes = state_->costs.max_bytes};
  }

  [[nodiscard]] pinfold::result<registration_type> open(pinfold::range memory, pinfold::access_flags access) noexcept {
    if (auto fit = pinfold::check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
    const auto begin = state_->begin_of_call(memory.size());
    std::this_thread::sleep_until(begin + state_->time_of(memory.size()));
    state_->longest.note(clock::now() - begin);
    return registration_type{memory.begin};
  }

  [[nodiscard]] pinfold::result<void> close(const registration_type& /*made*/) noexcept { return {}; }

  /// Returns the longest time that the driver worked on one call, in seconds. Any thread.
  [[nodiscard]] double longest() const noexcept { return state_->longest.seconds(); }

 private:
  using clock = std::chrono::steady_clock;

  struct state {
    explicit state(const simulated_costs& what) noexcept : costs(what) {}

    [[nodiscard]] clock::duration time_of(std::size_t bytes) const noexcept {
      return std::chrono::duration_cast<clock::duration>(
          std::chrono::duration<double>(costs.seconds(bytes) / costs.scale));
    }

    // The calls of a driver that serialises follow each other without a gap, however late a thread wakes up.
    clock::time_point begin_of_call(std::size_t bytes) noexcept {
      const auto now = clock::now();
      if (!costs.serialises) return now;
      const std::scoped_lock guard(mutex);
      const auto begin = std::max(busy_until, now);
      busy_until = begin + time_of(bytes);
      return begin;
    }

    const simulated_costs costs;
    std::mutex mutex;
    clock::time_point busy_until;  // guarded by mutex
    longest_time longest;
  };

  std::unique_ptr<state> state_;
};

}  // namespace tool
