// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A correct importer, of which each test breaks one part.
#pragma once

#include <pinfold/import_cache.hpp>

struct good_handle {
  std::uint64_t serial;
  std::uint64_t base;
};

struct good_registration {
  void* address;
};

template <class Handle = good_handle, class Registration = good_registration>
struct importer_of {
  static constexpr const char* name = "test";
  static constexpr bool allows_duplicates = false;
  using handle_type = Handle;
  using registration_type = Registration;

  pinfold::result<pinfold::range> check(const Handle&) const noexcept;
  pinfold::result<pinfold::imported<Registration>> open(pinfold::peer_id, const Handle&) noexcept;
  pinfold::result<void> close(const Registration&) noexcept;
};

using good_importer = importer_of<>;
