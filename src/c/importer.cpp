// SPDX-License-Identifier: BSD-3-Clause
// An importer in C: a table of functions.
#include "c/callback_table.hpp"

#include <pinfold/importer.hpp>

#include <cstring>

namespace pinfold::c {

namespace {

static_assert(sizeof(pinfold_registration) <= max_imported_registration_bytes);

class table_importer : public callback_table<pinfold_importer> {
 public:
  table_importer(const pinfold_importer& calls, void* self) : callback_table(calls, self) {}

  static result<void> check_calls(const pinfold_importer& calls) noexcept {
    if (calls.name == nullptr || calls.check == nullptr || calls.open == nullptr || calls.close == nullptr)
      return fail(errc::invalid_argument, "an importer needs a name, check, open and close");
    if (calls.handle_bytes == 0 || calls.handle_bytes > max_handle_bytes)
      return fail(errc::invalid_argument, "a handle has 1 to 896 bytes");
    return {};
  }

  [[nodiscard]] detail::driver table() noexcept {
    return {
        .self = this,
        .name = name_.c_str(),
        .token_bytes = calls_.handle_bytes,
        .object_bytes = sizeof(pinfold_registration),
        .allows_duplicates = calls_.allows_duplicates != 0,
        .check = check,
        .open = open,
        .close = close,
    };
  }

  /// Calls the application's `check`.
  static result<range> allocation(const void* of, const void* handle) noexcept {
    const auto& own = *static_cast<const table_importer*>(of);
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    pinfold_error failure{};
    const int code = called(own.cache_, failure, [&] { return own.calls_.check(own.self_, handle, &base, &bytes); });
    if (code != PINFOLD_OK) return tl::unexpected(from_callback(code, failure, "the importer refuses the handle"));
    auto where = range::of(base, bytes);
    if (!where) return fail(errc::invalid_handle, "the importer returned an empty allocation for the handle");
    return where;
  }

 private:
  static result<range> check(const void* of, const detail::request& what) noexcept {
    auto where = allocation(of, what.token);
    if (where && !where->contains(what.wanted))
      return fail(errc::invalid_range, "the request reaches outside the allocation of its handle");
    return where;
  }

  static result<detail::opened> open(void* of, const detail::open_request& what) noexcept {
    auto& own = *static_cast<table_importer*>(of);
    pinfold_open_request plain{};
    plain.size = sizeof plain;
    plain.peer = what.peer.value;
    plain.handle = what.token;
    plain.argument = what.argument;
    pinfold_imported made{};
    made.size = sizeof made;
    pinfold_error failure{};
    const int code = called(own.cache_, failure, [&] { return own.calls_.open(own.self_, &plain, &made, &failure); });
    if (code != PINFOLD_OK) return tl::unexpected(from_callback(code, failure, "the importer's open failed"));
    const range covered{made.base, made.base + made.bytes};  // the engine refuses less than it requested, and closes it
    detail::opened as_bytes{covered, made.data, made.budget_bytes == 0 ? made.bytes : made.budget_bytes, {}};
    std::memcpy(as_bytes.object.bytes.data(), &made.registration, sizeof made.registration);
    return as_bytes;
  }

  static result<void> close(void* of, const detail::registration& object) noexcept {
    auto& own = *static_cast<table_importer*>(of);
    pinfold_registration made;
    std::memcpy(&made, object.bytes.data(), sizeof made);
    pinfold_error failure{};
    const int code = called(own.cache_, failure, [&] { return own.calls_.close(own.self_, &made, &failure); });
    if (code != PINFOLD_OK) return tl::unexpected(from_callback(code, failure, "the importer's close failed"));
    return {};
  }
};

}  // namespace

}  // namespace pinfold::c

int pinfold_create_import(const pinfold_importer* importer, void* self, const pinfold_options* options,
                          pinfold_cache** cache) {
  using namespace pinfold;
  return c::create_over<c::table_importer>(
      importer, self, "the importer has a wrong size or unknown members", options, cache,
      [](const pinfold_importer&, c::back_end& behind) noexcept { behind.allocation = c::table_importer::allocation; });
}
