// SPDX-License-Identifier: BSD-3-Clause
// A registrar in C: a table of functions.
#include "c/callback_table.hpp"
#include "os/page_bytes.hpp"

#include <pinfold/detail/local_driver.hpp>
#include <pinfold/registrar.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <span>

namespace pinfold::c {

namespace {

constexpr std::uint32_t all_access = 2 * PINFOLD_REMOTE_ATOMIC - 1;

class table_registrar : public callback_table<pinfold_registrar> {
 public:
  static constexpr const char* name = "c";
  using registration_type = pinfold_registration;

  table_registrar(const pinfold_registrar& calls, void* self) : callback_table(calls, self) {}

  static result<void> check_calls(const pinfold_registrar& calls) noexcept {
    if (calls.name == nullptr || calls.open == nullptr || calls.close == nullptr)
      return fail(errc::invalid_argument, "a registrar needs a name, open and close");
    if (calls.granularity > os::page_bytes() || (calls.granularity != 0 && !std::has_single_bit(calls.granularity)))
      return fail(errc::invalid_argument, "the granularity is not a power of two up to the page size");
    if ((calls.access & ~all_access) != 0)
      return fail(errc::invalid_argument, "the registrar's access has unknown bits");
    return {};
  }

  [[nodiscard]] registrar_limits limits() const noexcept {
    return {.granularity = calls_.granularity == 0 ? os::page_bytes() : calls_.granularity,
            .max_bytes = calls_.max_bytes == 0 ? unlimited : calls_.max_bytes,
            .supported = static_cast<access_flags>(calls_.access == 0 ? all_access : calls_.access)};
  }
  // The engine calls `open_with` instead, with the caller's argument.
  [[nodiscard]] result<pinfold_registration> open(const range& memory, access_flags access) noexcept {
    return open_with({{}, memory, nullptr, access, nullptr});
  }
  [[nodiscard]] result<void> close(const pinfold_registration& made) noexcept {
    pinfold_error failure{};
    const int code = called(cache_, failure, [&] { return calls_.close(self_, &made, &failure); });
    if (code != PINFOLD_OK) return tl::unexpected(from_callback(code, failure, "the registrar's close failed"));
    return {};
  }

  [[nodiscard]] detail::driver table() noexcept {
    auto table = detail::local_driver<table_registrar>::table(*this);
    table.name = name_.c_str();
    table.open = [](void* self, const detail::open_request& what) noexcept -> result<detail::opened> {
      auto made = static_cast<table_registrar*>(self)->open_with(what);
      if (!made) return tl::unexpected(made.error());
      return as_opened(what, *made);
    };
    if (calls_.open_many != nullptr)
      table.open_many = [](void* self, std::span<const detail::open_request> what,
                           std::span<result<detail::opened>> made) noexcept {
        static_cast<table_registrar*>(self)->open_many(what, made);
      };
    return table;
  }

  [[nodiscard]] static bool still_is(const void* of, const void* made, const range& wanted) noexcept {
    const auto& own = *static_cast<const table_registrar*>(of);
    pinfold_error failure{};
    return called(own.cache_, failure, [&] {
             return own.calls_.still_is(own.self_, static_cast<const pinfold_registration*>(made),
                                        reinterpret_cast<const void*>(wanted.begin), wanted.size());
           }) > 0;
  }

 private:
  static pinfold_open_request as_c(const detail::open_request& what) noexcept {
    pinfold_open_request plain{};
    plain.size = sizeof plain;
    plain.address = reinterpret_cast<void*>(what.extent.begin);
    plain.bytes = what.extent.size();
    plain.access = static_cast<std::uint32_t>(what.access);
    plain.argument = what.argument;
    return plain;
  }

  static detail::opened as_opened(const detail::open_request& what, const pinfold_registration& made) noexcept {
    detail::opened plain{what.extent, reinterpret_cast<void*>(what.extent.begin), what.extent.size(), {}};
    std::memcpy(plain.object.bytes.data(), &made, sizeof made);
    return plain;
  }

  [[nodiscard]] result<pinfold_registration> open_with(const detail::open_request& what) noexcept {
    const auto plain = as_c(what);
    pinfold_registration made{};
    pinfold_error failure{};
    const int code = called(cache_, failure, [&] { return calls_.open(self_, &plain, &made, &failure); });
    if (code != PINFOLD_OK) return tl::unexpected(from_callback(code, failure, "the registrar's open failed"));
    return made;
  }

  void open_many(std::span<const detail::open_request> what, std::span<result<detail::opened>> made) noexcept {
    std::array<pinfold_open_request, detail::most_in_group> requests;
    std::array<pinfold_registration, detail::most_in_group> registrations{};
    std::array<int, detail::most_in_group> codes{};
    std::array<pinfold_error, detail::most_in_group> failures{};
    for (std::size_t i = 0; i < what.size(); ++i) requests[i] = as_c(what[i]);
    codes.fill(PINFOLD_E_DRIVER_ERROR);  // for ranges without an answer of the registrar
    pinfold_error thrown{};
    const int all = called(cache_, thrown, [&] {
      calls_.open_many(self_, requests.data(), what.size(), registrations.data(), codes.data(), failures.data());
      return PINFOLD_OK;
    });
    for (std::size_t i = 0; i < what.size(); ++i) {
      if (codes[i] == PINFOLD_OK) {
        made[i] = as_opened(what[i], registrations[i]);
      } else {
        made[i] = tl::unexpected(
            from_callback(codes[i], all == PINFOLD_OK ? failures[i] : thrown, "the registrar's open_many failed"));
      }
    }
  }
};

}  // namespace

}  // namespace pinfold::c

int pinfold_create(const pinfold_registrar* registrar, void* self, const pinfold_options* options,
                   pinfold_cache** cache) {
  using namespace pinfold;
  const auto add = [](const pinfold_registrar& calls, c::back_end& behind) noexcept {
    behind.limits = [](const void* of) noexcept { return static_cast<const c::table_registrar*>(of)->limits(); };
    if (calls.still_is != nullptr) behind.still_is = c::table_registrar::still_is;
  };
  return c::create_over<c::table_registrar>(registrar, self, "the registrar has a wrong size or unknown members",
                                            options, cache, add);
}
