// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace pinfold {

namespace {

std::string posix_text(std::int32_t code) {
  const char* name = strerrorname_np(code);
  const char* meaning = strerrordesc_np(code);
  const std::string number = std::to_string(code);
  if (name == nullptr || meaning == nullptr) return "errno " + number;
  return std::string(name) + " " + number + ": " + meaning;
}

struct cuda_name {
  std::int32_t code;
  const char* name;
};

// The codes that pinfold's calls can return. The driver has the names of all codes, but a process that prints may have
// no driver.
constexpr std::array cuda_names{
    cuda_name{1, "CUDA_ERROR_INVALID_VALUE"},
    cuda_name{2, "CUDA_ERROR_OUT_OF_MEMORY"},
    cuda_name{3, "CUDA_ERROR_NOT_INITIALIZED"},
    cuda_name{4, "CUDA_ERROR_DEINITIALIZED"},
    cuda_name{34, "CUDA_ERROR_STUB_LIBRARY"},
    cuda_name{100, "CUDA_ERROR_NO_DEVICE"},
    cuda_name{101, "CUDA_ERROR_INVALID_DEVICE"},
    cuda_name{201, "CUDA_ERROR_INVALID_CONTEXT"},
    cuda_name{205, "CUDA_ERROR_MAP_FAILED"},
    cuda_name{206, "CUDA_ERROR_UNMAP_FAILED"},
    cuda_name{208, "CUDA_ERROR_ALREADY_MAPPED"},
    cuda_name{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    cuda_name{304, "CUDA_ERROR_OPERATING_SYSTEM"},
    cuda_name{400, "CUDA_ERROR_INVALID_HANDLE"},
    cuda_name{700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    cuda_name{709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    cuda_name{712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    cuda_name{713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    cuda_name{719, "CUDA_ERROR_LAUNCH_FAILED"},
    cuda_name{800, "CUDA_ERROR_NOT_PERMITTED"},
    cuda_name{801, "CUDA_ERROR_NOT_SUPPORTED"},
    cuda_name{999, "CUDA_ERROR_UNKNOWN"},
};

std::string cuda_text(std::int32_t code) {
  const auto known = std::ranges::find(cuda_names, code, &cuda_name::code);
  const std::string number = "CUresult " + std::to_string(code);
  return known == cuda_names.end() ? number : number + ": " + known->name;
}

// The codes from FI_ERRNO_OFFSET up that a registration can return. Codes below that are the system's, under other
// names.
constexpr int first_of_libfabric = 256;
constexpr std::array libfabric_names{
    std::pair{256, "FI_EOTHER"},  std::pair{258, "FI_EOPBADSTATE"}, std::pair{260, "FI_EBADFLAGS"},
    std::pair{262, "FI_EDOMAIN"}, std::pair{266, "FI_ENOKEY"},      std::pair{270, "FI_ENOMR"},
};

std::string libfabric_text(std::int32_t code) {
  if (code > 0 && code < first_of_libfabric) return "FI_" + posix_text(code);
  const auto known = std::ranges::find(libfabric_names, code, [](const auto& one) { return one.first; });
  const std::string number = "fi_errno " + std::to_string(code);
  return known == libfabric_names.end() ? number : number + ": " + known->second;
}

std::string native_text(const error& failure) {
  switch (failure.kind) {
    case native_kind::none: return "";
    case native_kind::posix: return " (" + posix_text(failure.native) + ")";
    case native_kind::cuda: return " (" + cuda_text(failure.native) + ")";
    case native_kind::libfabric: return " (" + libfabric_text(failure.native) + ")";
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
  if (failure.message != nullptr && *failure.message != '\0') line.append(": ").append(failure.message);
  return line + native_text(failure);
}

}  // namespace pinfold
