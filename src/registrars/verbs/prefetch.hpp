// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrars/verbs.hpp>

#include <cstdint>

struct ibv_pd;

namespace pinfold::verbs {

/// Prefetches memory of an on-demand region, in pieces that fit ibv_sge.
[[nodiscard]] result<void> prefetch(::ibv_pd* domain, std::uint32_t lkey, range memory, bool to_write,
                                    verbs_prefetch how) noexcept;

}  // namespace pinfold::verbs
