// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caches of a run, which are made and destroyed while threads use them.
#pragma once

#include "choices.hpp"
#include "findings.hpp"
#include "stamped_registrar.hpp"
#include "support/doubles/test_ring.hpp"
#include "support/hazards/hazard_stage.hpp"

#include <pinfold/cache.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

/// A cache and its device, if it has one, which sends registered memory. Thread-safe.
class cache_and_device {
 public:
  using cache_type = pinfold::cache<stamped_registrar>;

  /// The destructor adds the number of hits to `hits`.
  cache_and_device(const arena& slots, std::atomic<std::uint64_t>& hits, bool with_device, const cache_options& how)
      : hits_(hits), ring_(with_device ? ring_within_limits() : nullptr), cache_(registrar_of(slots), how) {
    const auto text = cache_.monitors();
    monitors_ = text.substr(0, text.find(" ("));
  }
  cache_and_device(const cache_and_device&) = delete;
  cache_and_device& operator=(const cache_and_device&) = delete;
  ~cache_and_device() {
    const auto done = cache_.statistics();
    count(hits_, done.hits + done.found);
    if (file_ >= 0) ::close(file_);
  }

  [[nodiscard]] cache_type& cache() { return cache_; }
  [[nodiscard]] bool has_device() const { return ring_ != nullptr; }
  [[nodiscard]] const std::string& monitors() const { return monitors_; }

  enum class answer : std::uint8_t { right, wrong, refused };

  /// Has the device send registered memory, and compares the bytes that arrived with the memory.
  [[nodiscard]] answer send(const std::byte* from, std::size_t bytes, const stamped_registrar::registration_type& by) {
    static thread_local std::vector<std::byte> received;
    received.assign(bytes, std::byte{0xee});
    {
      const std::lock_guard guard(mutex_);
      const auto sent = ring_->write(file_, from, static_cast<unsigned>(bytes), 0, by.index);
      if (sent != static_cast<int>(bytes)) return answer::refused;
      if (::pread(file_, received.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return answer::refused;
    }
    return std::memcmp(received.data(), from, bytes) == 0 ? answer::right : answer::wrong;
  }

 private:
  static constexpr unsigned slots_of_ring = 256;

  /// Returns no ring where idle registrations of the other caches have the user at RLIMIT_MEMLOCK.
  [[nodiscard]] static std::unique_ptr<test_ring> ring_within_limits() {
    try {
      return std::make_unique<test_ring>();
    } catch (const std::system_error& refused) {
      if (refused.code() != std::errc::not_enough_memory) throw;
      return nullptr;
    }
  }

  [[nodiscard]] stamped_registrar registrar_of(const arena& slots) {
    if (!ring_) return {slots, std::nullopt};
    return {slots, registrar_on(*ring_, slots_of_ring)};
  }

  std::atomic<std::uint64_t>& hits_;
  std::mutex mutex_;  // one thread writes at a time
  std::unique_ptr<test_ring> ring_;
  int file_ = ring_ ? ::memfd_create("received", MFD_CLOEXEC) : -1;
  cache_type cache_;
  std::string monitors_;
};

/// The caches. A thread takes a cache for a step, or while it holds a lease of it. The last one to let go destroys it.
class caches {
 public:
  static constexpr std::size_t count = 4;

  caches(const arena& slots, std::atomic<std::uint64_t>& hits, const watch_case& who, bool devices,
         const std::string& monitors)
      : slots_(slots), hits_(hits), who_(who), devices_(devices), monitors_(monitors) {}

  [[nodiscard]] std::shared_ptr<cache_and_device> get(std::size_t number) {
    const std::lock_guard guard(mutex_);
    return all_.at(number % count);
  }

  /// Makes a cache in that place; those in the first two places have a device. Leaves the place empty if the cache
  /// relies on fewer monitors than were proven, as one does that begins while a foreign patch covers the hooks: the
  /// round's claims are not its claims.
  void make(std::size_t number, choices& random) {
    const auto with_device = devices_ && number % count < 2;
    auto made = std::make_shared<cache_and_device>(slots_, hits_, with_device, options(random));
    if (!monitors_.empty() && made->monitors() != monitors_) made.reset();
    replace(number, std::move(made));
  }
  /// Leaves the place empty.
  void drop(std::size_t number) { replace(number, nullptr); }

 private:
  void replace(std::size_t number, std::shared_ptr<cache_and_device> by) {
    const std::lock_guard guard(mutex_);
    all_.at(number % count).swap(by);
    // The old cache is destroyed after the guard: parameters outlive local variables.
  }

  [[nodiscard]] cache_options options(choices& random) const {
    cache_options made;
    made.monitor = who_.monitor;
    made.strict = who_.strict;
    made.program_data = true;
    made.reaper = random.one_in(4);
    made.max_count = random.one_in(3) ? 24 : unlimited;
    made.full = when_full::bypass;
    made.merge = random.one_in(2) ? merge_policy::none : merge_policy::overlaps;
    made.closes = random.one_in(3) ? close_policy::deferred : close_policy::immediate;
    return made;
  }

  const arena& slots_;
  std::atomic<std::uint64_t>& hits_;
  const watch_case& who_;
  bool devices_;
  const std::string& monitors_;
  std::mutex mutex_;
  std::array<std::shared_ptr<cache_and_device>, count> all_;
};

}  // namespace pinfold::testing::hazard_fuzz
