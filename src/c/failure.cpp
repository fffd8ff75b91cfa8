// SPDX-License-Identifier: BSD-3-Clause
#include "c/failure.hpp"

#include "c/text.hpp"

#include <pinfold/version.hpp>

#include <array>
#include <string>

namespace pinfold::c {

namespace {

thread_local constinit pinfold_error last{PINFOLD_OK, PINFOLD_NATIVE_NONE, 0, ""};
thread_local constinit std::array<char, 256> last_text{};  // for a message that is not static

// The codes never change, so `errc` must keep its order, and new codes come last.
static_assert(code_of(errc::invalid_range) == PINFOLD_E_INVALID_RANGE &&
              code_of(errc::invalid_handle) == PINFOLD_E_INVALID_HANDLE &&
              code_of(errc::invalid_argument) == PINFOLD_E_INVALID_ARGUMENT &&
              code_of(errc::too_large) == PINFOLD_E_TOO_LARGE &&
              code_of(errc::not_permitted) == PINFOLD_E_NOT_PERMITTED &&
              code_of(errc::over_budget) == PINFOLD_E_OVER_BUDGET &&
              code_of(errc::larger_than_budget) == PINFOLD_E_LARGER_THAN_BUDGET &&
              code_of(errc::out_of_resources) == PINFOLD_E_OUT_OF_RESOURCES &&
              code_of(errc::in_use_conflict) == PINFOLD_E_IN_USE_CONFLICT &&
              code_of(errc::already_mapped) == PINFOLD_E_ALREADY_MAPPED &&
              code_of(errc::stale_handle) == PINFOLD_E_STALE_HANDLE &&
              code_of(errc::peer_gone) == PINFOLD_E_PEER_GONE && code_of(errc::unsupported) == PINFOLD_E_UNSUPPORTED &&
              code_of(errc::timed_out) == PINFOLD_E_TIMED_OUT &&
              code_of(errc::driver_error) == PINFOLD_E_DRIVER_ERROR && code_of(errc::closed) == PINFOLD_E_CLOSED);
static_assert(static_cast<int>(native_kind::posix) == PINFOLD_NATIVE_POSIX &&
              static_cast<int>(native_kind::cuda) == PINFOLD_NATIVE_CUDA &&
              static_cast<int>(native_kind::libfabric) == PINFOLD_NATIVE_LIBFABRIC);

constexpr bool is_code(int code) noexcept {
  return code <= code_of(errc::invalid_range) && code >= code_of(errc::closed);
}

}  // namespace

pinfold_error as_c(const error& failure) noexcept {
  return {code_of(failure.code), static_cast<int>(failure.kind), failure.native, failure.message};
}

error from_callback(int code, const pinfold_error& described, const char* otherwise) noexcept {
  error failure{errc::driver_error, native_kind::none, described.native, otherwise};
  if (is_code(code)) failure.code = static_cast<errc>(-1 - code);
  if (described.native_kind > PINFOLD_NATIVE_NONE && described.native_kind <= PINFOLD_NATIVE_LIBFABRIC)
    failure.kind = static_cast<native_kind>(described.native_kind);
  if (described.message != nullptr) failure.message = described.message;
  return failure;
}

int refuse(const error& failure) noexcept {
  last = as_c(failure);
  return last.code;
}

int refuse_at(std::string_view where, const error& failure) noexcept {
  static_cast<void>(
      write_text(last_text.data(), last_text.size(), [&] { return std::string(where) + ": " + failure.message; }));
  last = as_c(failure);
  last.message = last_text.data();
  return last.code;
}

}  // namespace pinfold::c

extern "C" {

const pinfold_error* pinfold_last_error(void) { return &pinfold::c::last; }

const char* pinfold_error_name(int code) {
  if (code == PINFOLD_OK) return "ok";
  return pinfold::c::is_code(code) ? name_of(static_cast<pinfold::errc>(-1 - code)) : "unknown";
}

size_t pinfold_describe_error(const pinfold_error* failure, char* text, size_t room) {
  if (failure == nullptr) return pinfold::c::copy_text("no failure was given", text, room);
  return pinfold::c::write_text(text, room, [&] {
    if (failure->code == PINFOLD_OK) return std::string("ok");
    return describe(pinfold::c::from_callback(failure->code, *failure, ""));
  });
}

static_assert(PINFOLD_API_VERSION ==
              (PINFOLD_VERSION_MAJOR << 16U | PINFOLD_VERSION_MINOR << 8U | PINFOLD_VERSION_PATCH));
uint32_t pinfold_version(void) { return PINFOLD_API_VERSION; }

}  // extern "C"
