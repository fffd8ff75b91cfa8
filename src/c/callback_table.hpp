// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The application's table of functions, and the cache over it.
#pragma once

#include "c/cache.hpp"
#include "c/callbacks.hpp"
#include "c/structure.hpp"

#include <memory>
#include <string>
#include <utility>

namespace pinfold::c {

/// A copy of the functions, and their `self`. Calls `finished` at the end of its cache.
template <class Calls>
class callback_table {
 public:
  /// Sets the cache whose callbacks these are. Without a cache, the application still owns `self`.
  void serve(const pinfold_cache* cache) noexcept { cache_ = cache; }

 protected:
  callback_table(const Calls& calls, void* self) : calls_(calls), self_(self), name_(calls.name) {}
  callback_table(callback_table&&) = default;  // required by the concept of a registrar
  callback_table& operator=(callback_table&&) = delete;
  ~callback_table() {
    pinfold_error failure{};
    if (cache_ == nullptr || calls_.finished == nullptr) return;
    static_cast<void>(called(cache_, failure, [&] { return calls_.finished(self_), PINFOLD_OK; }));
  }

  const Calls calls_;
  void* const self_;
  const std::string name_;
  const pinfold_cache* cache_ = nullptr;
};

/// Makes a cache over a `Table` of the given functions, if `Table::check_calls` accepts them. `add` fills in the
/// members of `back_end` that only such a back end has.
template <class Table, class Calls, class F>
int create_over(const Calls* given, void* self, const char* malformed, const pinfold_options* options,
                pinfold_cache** cache, F&& add) noexcept {
  if (cache != nullptr) *cache = nullptr;
  Calls calls{};
  if (!read(given, calls)) return refuse(errc::invalid_argument, malformed);
  if (auto right = Table::check_calls(calls); !right) return refuse(right.error());
  back_end behind;
  const int made = guarded([&]() -> result<void> {
    const auto own = std::make_shared<Table>(calls, self);
    behind.table = own->table();
    behind.owner = own;
    return {};
  });
  if (made != PINFOLD_OK) return made;
  behind.used_by = [](void* of, const pinfold_cache* by) noexcept { static_cast<Table*>(of)->serve(by); };
  add(calls, behind);
  return create(std::move(behind), options, cache);
}

}  // namespace pinfold::c
