// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/verbs/prefetch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <infiniband/verbs.h>

namespace pinfold::verbs {

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 30U;  // the length of ibv_sge has 32 bits
constexpr std::size_t most_pieces = 16;

error refused_prefetch(int native) noexcept {
  switch (native) {
    case EOPNOTSUPP:
    case ENOSYS: return {errc::unsupported, native_kind::posix, native, "the device cannot prefetch"};
    case EFAULT:
    case EINVAL:
    case ENOENT:
      return {errc::invalid_range, native_kind::posix, native,
              "the memory is not mapped, or not of an on-demand region"};
    case EPERM:
    case EACCES: return {errc::not_permitted, native_kind::posix, native, "the region does not allow this access"};
    default: return {errc::driver_error, native_kind::posix, native, "the device refused to prefetch"};
  }
}

// Advances the begin of `rest` past the pieces.
int advise(::ibv_pd* domain, std::uint32_t lkey, range& rest, ibv_advise_mr_advice advice, unsigned flags) noexcept {
  std::array<ibv_sge, most_pieces> pieces{};
  std::uint32_t count = 0;
  for (; count < most_pieces && !rest.empty(); ++count) {
    const auto bytes = std::min(rest.size(), most_bytes);
    pieces[count] = {rest.begin, static_cast<std::uint32_t>(bytes), lkey};
    rest.begin += bytes;
  }
  return ::ibv_advise_mr(domain, advice, flags, pieces.data(), count);
}

}  // namespace

result<void> prefetch(::ibv_pd* domain, std::uint32_t lkey, range memory, bool to_write, verbs_prefetch how) noexcept {
  auto advice = to_write ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE : IBV_ADVISE_MR_ADVICE_PREFETCH;
  if (how == verbs_prefetch::present) advice = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  const unsigned flags = how == verbs_prefetch::start ? 0 : IBV_ADVISE_MR_FLAG_FLUSH;
  while (!memory.empty())
    if (const int native = advise(domain, lkey, memory, advice, flags); native != 0)
      return tl::unexpected(refused_prefetch(native));
  return {};
}

}  // namespace pinfold::verbs
