// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/error.hpp>

#include <cstring>

namespace pinfold {

namespace {

std::string posix_text(std::int32_t code) {
  const char* name = strerrorname_np(code);
  const char* meaning = strerrordesc_np(code);
  const std::string number = std::to_string(code);
  if (name == nullptr || meaning == nullptr) return "errno " + number;
  return std::string(name) + " " + number + ": " + meaning;
}

std::string native_text(const error& failure) {
  switch (failure.kind) {
    case native_kind::none: return "";
    case native_kind::posix: return " (" + posix_text(failure.native) + ")";
    // The words for it are in the driver's library, which a process without a GPU need not have.
    case native_kind::cuda: return " (CUresult " + std::to_string(failure.native) + ")";
  }
  return "";
}

}  // namespace

const char* name_of(errc code) noexcept {
  switch (code) {
    case errc::invalid_range: return "invalid_range";
    case errc::invalid_handle: return "invalid_handle";
    case errc::invalid_argument: return "invalid_argument";
    case errc::too_large: return "too_large";
    case errc::not_permitted: return "not_permitted";
    case errc::over_budget: return "over_budget";
    case errc::larger_than_budget: return "larger_than_budget";
    case errc::out_of_resources: return "out_of_resources";
    case errc::in_use_conflict: return "in_use_conflict";
    case errc::already_mapped: return "already_mapped";
    case errc::stale_handle: return "stale_handle";
    case errc::peer_gone: return "peer_gone";
    case errc::unsupported: return "unsupported";
    case errc::timed_out: return "timed_out";
    case errc::driver_error: return "driver_error";
    case errc::closed: return "closed";
  }
  return "unknown";
}

std::string describe(const error& failure) {
  std::string line = name_of(failure.code);
  if (*failure.message != '\0') line.append(": ").append(failure.message);
  return line + native_text(failure);
}

}  // namespace pinfold
