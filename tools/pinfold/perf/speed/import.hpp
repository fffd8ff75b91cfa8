// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The import cache for measurements: over an importer that does nothing, with handles of 64 bytes like CUDA's.
#pragma once

#include "perf/speed/subjects.hpp"

#include <pinfold/error.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/importer.hpp>

#include "bench/subject.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace tool {

class null_importer {
 public:
  static constexpr const char* name = "null";
  static constexpr bool allows_duplicates = true;
  struct handle_type {
    std::uint64_t base;
    std::uint64_t bytes;
    std::array<std::uint64_t, 6> serial;
  };
  static_assert(sizeof(handle_type) == 64);
  struct registration_type {
    std::uint64_t key;
  };

  [[nodiscard]] pinfold::result<pinfold::range> check(const handle_type& handle) const noexcept {
    return pinfold::range::of(handle.base, handle.bytes);
  }
  [[nodiscard]] pinfold::result<pinfold::imported<registration_type>> open(pinfold::peer_id /*peer*/,
                                                                           const handle_type& handle) noexcept {
    const pinfold::range covered{handle.base, handle.base + handle.bytes};
    return pinfold::imported<registration_type>{
        covered, reinterpret_cast<void*>(handle.base), handle.bytes, {handle.base}};
  }
  [[nodiscard]] pinfold::result<void> close(const registration_type& /*mapping*/) noexcept { return {}; }
};

/// The regions are the allocations of one peer, whose handles lie in an array, in the order of arrival.
class import_subject {
 public:
  static constexpr const char* name = "pinfold-import";
  using cache = pinfold::import_cache<null_importer>;
  using handles = std::vector<null_importer::handle_type>;

  import_subject(const bench::region_set& regions, const bench::setup& how)
      : regions_(regions), cache_(null_importer(), options_for(how)) {
    handles_.reserve(regions.count());
    for (std::size_t index = 0; index < regions.count(); ++index) {
      const auto where = regions[index];
      handles_.push_back({where.address, where.bytes, {index + 1, 2, 3, 4, 5, 6}});
    }
  }

  class importing_user {
   public:
    using held = cache::lease;

    importing_user(const bench::region_set& regions, cache& used, const handles& known) noexcept
        : regions_(regions), cache_(&used), handles_(known.data()) {}

    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      const auto& handle = handles_[regions_.index_of(wanted.address)];
      auto lease = cache_->acquire(pinfold::peer_id{1}, handle, wanted.address, wanted.bytes);
      return lease ? *std::move(lease) : held();
    }
    [[nodiscard]] std::uint64_t key(const held& lease) const noexcept { return lease ? lease.registration().key : 0; }
    void put(held& lease) noexcept { static_cast<void>(lease.release()); }

   private:
    bench::region_set regions_;
    cache* cache_;
    const null_importer::handle_type* handles_;
  };

  /// Returns the memory of the handles, which are the requests' and not the cache's.
  [[nodiscard]] std::size_t bytes_of_requests() const noexcept {
    return handles_.capacity() * sizeof(null_importer::handle_type);
  }

  [[nodiscard]] importing_user user() noexcept { return {regions_, cache_, handles_}; }

 private:
  bench::region_set regions_;
  cache cache_;
  handles handles_;
};

}  // namespace tool
