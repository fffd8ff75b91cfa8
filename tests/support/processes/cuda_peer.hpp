// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A process with GPU memory that obeys a test. It is a program of its own (cuda_peer_program.cpp), since a process
/// that was forked off one that uses CUDA has no driver.
#pragma once

#include "support/fixtures/cuda_here.hpp"
#include "support/host/built_file.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/cuda_peer_protocol.hpp"

#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace pinfold::testing {

/// A peer process with GPU memory. Memory is filled with the pattern of the given seed. Not thread-safe. Failures in
/// the peer throw here, except in members that return a `result`.
class cuda_peer {
 public:
  using verb = cuda_order::verb;

  /// An address, and what the peer shared of it.
  struct memory : cuda_shared {
    [[nodiscard]] std::size_t size() const noexcept { return handle.size; }
  };

  explicit cuda_peer(bool events = false) : child_([events](line& parent) { return become_program(parent, events); }) {}

  memory allocate(std::size_t bytes, std::uint32_t seed) {
    return made({.what = verb::allocate, .seed = seed, .bytes = bytes});
  }
  memory allocate_pooled(std::size_t bytes, std::uint32_t seed) {
    return made({.what = verb::allocate_pooled, .seed = seed, .bytes = bytes});
  }
  memory map_segments(std::uint32_t count, std::size_t bytes, std::uint32_t seed) {
    return made({.what = verb::map_segments, .seed = seed, .count = count, .bytes = bytes});
  }
  void replace_segment(std::uint64_t at, std::size_t bytes, std::uint32_t seed) {
    demand({.what = verb::replace_segment, .seed = seed, .bytes = bytes, .address = at});
  }
  void unmap_segment(std::uint64_t at, std::size_t bytes) {
    demand({.what = verb::unmap_segment, .bytes = bytes, .address = at});
  }
  void map_segment(std::uint64_t at, std::size_t bytes, std::uint32_t seed) {
    demand({.what = verb::map_segment, .seed = seed, .bytes = bytes, .address = at});
  }
  /// Shares the range segment by segment.
  [[nodiscard]] result<std::vector<cuda_shared>> share_segments(std::uint64_t address, std::size_t bytes) {
    std::vector<cuda_shared> all;
    for (std::uint64_t number = 1; all.size() < number;) {
      const auto count = static_cast<std::uint32_t>(all.size());
      auto got = ask({.what = verb::share_segments, .count = count, .bytes = bytes, .address = address});
      got.failure.message = "said by the peer";
      if (!got.done) return tl::unexpected(got.failure);
      number = got.address;
      all.push_back(got.shared);
    }
    return all;
  }
  void free(std::uint64_t address) { demand({.what = verb::free, .address = address}); }
  void write(std::uint64_t address, std::size_t bytes, std::uint32_t seed) {
    demand({.what = verb::write, .seed = seed, .bytes = bytes, .address = address});
  }
  /// Starts a write and returns before it is done, after recording the event that the memory was shared with.
  void write_later(std::uint64_t address, std::size_t bytes, std::uint32_t seed) {
    demand({.what = verb::write_later, .seed = seed, .bytes = bytes, .address = address});
  }
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes, std::uint32_t seed) {
    return ask({.what = verb::check, .seed = seed, .bytes = bytes, .address = address}).done;
  }
  [[nodiscard]] result<cuda_shared> share(std::uint64_t address, std::size_t at_least = 1) {
    return shared({.what = verb::share, .address = address, .at_least = at_least});
  }
  /// Allocates memory of that kind, and tries to share it.
  [[nodiscard]] result<cuda_shared> share_new(verb kind, std::size_t bytes) {
    return shared({.what = kind, .bytes = bytes});
  }
  void record() { demand({.what = verb::record}); }
  void reset_device() { demand({.what = verb::reset_device}); }

  [[nodiscard]] child_process& process() noexcept { return child_; }

 private:
  static int become_program(line& parent, bool events) {
    const int kept = ::fcntl(parent.number(), F_DUPFD, 3);  // without FD_CLOEXEC
    const std::string number = std::to_string(kept);
    ::execl(built_file("PINFOLD_TEST_CUDA_PEER", PINFOLD_CUDA_PEER), "cuda_peer", number.c_str(),
            events ? "events" : "plain", nullptr);
    return 127;
  }

  cuda_answer ask(const cuda_order& order) { return child_.ask<cuda_answer>(order); }
  void demand(const cuda_order& order) {
    const auto got = ask(order);
    if (!got.done)
      throw std::runtime_error("the GPU memory's process could not do it: CUresult " +
                               std::to_string(got.failure.native));
  }
  result<cuda_shared> shared(const cuda_order& order) {
    auto got = ask(order);
    if (got.done) return got.shared;
    got.failure.message = "said by the peer";
    return tl::unexpected(got.failure);
  }
  memory made(const cuda_order& order) {
    const auto got = shared(order);
    if (!got) throw std::runtime_error("the GPU memory's process could not: " + describe(got.error()));
    return {*got};
  }

  child_process child_;
};

}  // namespace pinfold::testing
