// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Caches over the registrars and importers of the C++ library.
#pragma once

#include "c/cache.hpp"

#include <pinfold/detail/import_driver.hpp>
#include <pinfold/detail/local_driver.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <cstring>
#include <memory>
#include <utility>

namespace pinfold::c {

/// Makes a cache over the registrar that `make`, which may throw, returns as a `result`.
template <class Make>
[[nodiscard]] int create_local(const pinfold_options* options, pinfold_cache** cache, Make&& make) noexcept {
  using registrar_type = typename std::invoke_result_t<Make&>::value_type;
  if (cache != nullptr) *cache = nullptr;
  back_end behind;
  const int made = guarded([&]() -> result<void> {
    auto fresh = make();
    if (!fresh) return tl::unexpected(fresh.error());
    const auto own = std::make_shared<registrar_type>(*std::move(fresh));
    behind.table = detail::local_driver<registrar_type>::table(*own);
    behind.owner = own;
    return {};
  });
  if (made != PINFOLD_OK) return made;
  behind.limits = [](const void* of) noexcept { return static_cast<const registrar_type*>(of)->limits(); };
  return create(std::move(behind), options, cache);
}

/// Returns the importer that maps memory: for a `releasing_importer`, the one below it.
template <class Importer>
[[nodiscard]] Importer* innermost(Importer* importer) noexcept {
  return importer;
}
template <class Importer>
[[nodiscard]] const Importer* innermost(const releasing_importer<Importer>* importer) noexcept {
  return &importer->below();
}
template <class Importer>
[[nodiscard]] Importer* innermost(releasing_importer<Importer>* importer) noexcept {
  return &importer->below();
}

/// Returns the importer's handle, which the caller may store at an unaligned address.
template <class Importer>
[[nodiscard]] typename Importer::handle_type copy_of(const void* handle) noexcept {
  typename Importer::handle_type copy;
  std::memcpy(static_cast<void*>(&copy), handle, sizeof copy);
  return copy;
}

/// Fills in the operations of the library's importers besides opening handles.
template <class Importer>
void add_questions(back_end& behind) noexcept {
  behind.allocation = [](const void* of, const void* handle) noexcept {
    return static_cast<const Importer*>(of)->check(copy_of<Importer>(handle));
  };
  behind.can_open = [](const void* of, const void* handle) noexcept {
    return innermost(static_cast<const Importer*>(of))->can_open(copy_of<Importer>(handle));
  };
  behind.add_window = [](void* of, const memory_window& window) noexcept -> result<void*> {
    const auto made = innermost(static_cast<Importer*>(of))->add_window(window);
    if (!made) return tl::unexpected(made.error());
    return reinterpret_cast<void*>(*made);  // for a device, an address as a number
  };
  behind.remove_window = [](void* of, const memory_window& window) noexcept {
    return innermost(static_cast<Importer*>(of))->remove_window(window);
  };
}

/// Returns the back end of a cache over the importer. Throws `std::bad_alloc`.
template <class Importer>
[[nodiscard]] back_end over_importer(Importer importer) {
  const auto own = std::make_shared<Importer>(std::move(importer));
  back_end behind;
  behind.table = detail::import_driver<Importer>::table(*own);
  add_questions<Importer>(behind);
  behind.owner = own;
  return behind;
}

/// Makes a cache over the importer that `make`, which may throw, returns.
template <class Make>
[[nodiscard]] int create_import(const pinfold_options* options, pinfold_cache** cache, Make&& make) noexcept {
  if (cache != nullptr) *cache = nullptr;
  back_end behind;
  const int made = guarded([&]() -> result<void> {
    behind = over_importer(make());
    return {};
  });
  if (made != PINFOLD_OK) return made;
  return create(std::move(behind), options, cache);
}

}  // namespace pinfold::c
