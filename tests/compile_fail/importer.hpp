// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A correct importer, of which each test breaks one part.
#pragma once

#include <pinfold/import_cache.hpp>

struct good_handle {
  std::uint64_t serial;
  std::uint64_t base;
};

struct good_mapping {
  void* address;
};

template <class Handle = good_handle, class Mapping = good_mapping>
struct importer_of {
  static constexpr const char* name = "test";
  static constexpr bool allows_duplicates = false;
  using handle_type = Handle;
  using mapping_type = Mapping;

  pinfold::result<pinfold::range> check(const Handle&) const noexcept;
  pinfold::result<pinfold::imported<Mapping>> open(pinfold::peer_id, const Handle&) noexcept;
  pinfold::result<void> close(const Mapping&) noexcept;
};

using good_importer = importer_of<>;
