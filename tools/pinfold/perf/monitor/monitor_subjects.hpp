// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// pinfold with each of the monitors, over a registrar that does nothing; and no cache at all.
#pragma once

#include "perf/speed/subjects.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/monitors/announce.hpp>
#include <pinfold/options.hpp>
#include <pinfold/registrars/null.hpp>

#include "bench/subject.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tool {

/// The hooks without another monitor. This tool makes system calls past libc to measure them, so the hooks alone do not
/// suffice here: the tool answers for those calls itself, as it never goes on using the memory that they unmap.
inline constexpr auto hooks_alone = pinfold::monitor_choice::hooks | pinfold::monitor_choice::manual;

/// Throws `bench::cannot_be_measured` where the monitor does not prove itself.
template <pinfold::monitor_choice Who, bool Strict = false>
class monitored_subject : public inline_subject {
  using choice = pinfold::monitor_choice;

 public:
  static constexpr const char* name = Strict                                         ? "strict"
                                      : Who == choice::manual                        ? "manual"
                                      : Who == hooks_alone                           ? "hooks"
                                      : Who == choice::userfaultfd                   ? "userfaultfd"
                                      : Who == (choice::hooks | choice::userfaultfd) ? "hooks+userfaultfd"
                                      : Who == choice::bpf                           ? "bpf"
                                                                                     : "unknown";

  monitored_subject(const bench::region_set& /*regions*/, const bench::setup& /*how*/)
      : inline_subject({.name = "perf", .monitor = Who, .strict = Strict}) {}

  /// Announces that memory goes, where no monitor does.
  void going(const void* address, std::size_t bytes) noexcept {
    if constexpr (Who == choice::manual) pinfold::announce_gone(address, bytes);
  }
  /// Does the cache's deferred work. A close that fails is counted.
  void tidy() noexcept { static_cast<void>(cache_.progress()); }
};

/// The control: a difference from zero here is noise.
class no_cache {
 public:
  static constexpr const char* name = "none";

  no_cache(const bench::region_set& /*regions*/, const bench::setup& /*how*/) noexcept {}

  class user_type {
   public:
    using held = std::uint64_t;
    [[nodiscard]] held get(const bench::request& /*wanted*/) noexcept { return 1; }
    [[nodiscard]] std::uint64_t key(held of) const noexcept { return of; }
    void put(held& /*of*/) noexcept {}
  };

  [[nodiscard]] user_type user() const noexcept { return {}; }
  [[nodiscard]] std::uint64_t registrations() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t deregistrations() const noexcept { return UINT64_MAX; }
};

}  // namespace tool
