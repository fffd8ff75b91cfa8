// SPDX-License-Identifier: BSD-3-Clause
// Registering again what pinfold_quiesce closed.
#include "c/cache.hpp"
#include "c/structure.hpp"

#include <pinfold/restoration.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

struct pinfold_restoration {
  const pinfold_cache* const cache;  ///< only compared: it may be destroyed
  pinfold::restoration running;
};

extern "C" {

int pinfold_restore(pinfold_cache* cache, uint32_t workers, pinfold_restoration** restoration) {
  using namespace pinfold;
  if (restoration == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the restoration");
  return c::guarded([&]() -> result<void> {
    if (auto right = c::may_wait(cache, c::kind::any); !right) return right;
    auto begun = restoration::begin(cache->on(), {.workers = workers == 0 ? restore_options{}.workers : workers});
    if (!begun) return tl::unexpected(begun.error());
    *restoration = std::make_unique<pinfold_restoration>(cache, std::move(*begun)).release();
    return {};
  });
}

int pinfold_restoration_wait(pinfold_restoration* restoration, uint64_t timeout_ms) {
  using namespace pinfold;
  if (restoration == nullptr) return c::refuse(errc::invalid_argument, "there is no restoration");
  if (c::callback::of(restoration->cache))
    return c::refuse(errc::in_use_conflict, "a callback of the cache must not wait for a restoration");
  if (timeout_ms == UINT64_MAX) {
    restoration->running.wait();
    return PINFOLD_OK;
  }
  constexpr std::uint64_t most = std::chrono::milliseconds(std::chrono::years(1)).count();
  if (restoration->running.wait_for(std::chrono::milliseconds(std::min(timeout_ms, most)))) return PINFOLD_OK;
  return c::refuse(errc::timed_out, "the restoration is still running");
}

int pinfold_restoration_progress(const pinfold_restoration* restoration, pinfold_restore_progress* progress) {
  using namespace pinfold;
  if (restoration == nullptr) return c::refuse(errc::invalid_argument, "there is no restoration");
  const auto now = restoration->running.progress();
  const pinfold_restore_progress in_c{.size = sizeof(pinfold_restore_progress),
                                      .total = now.total,
                                      .restored = now.restored,
                                      .skipped = now.skipped,
                                      .failed = now.failed,
                                      .bytes = now.bytes};
  if (!c::write(in_c, progress)) return c::refuse(errc::invalid_argument, "the structure is null, or has a wrong size");
  return c::as_code(restoration->running.failure());
}

int pinfold_end_restoration(pinfold_restoration* restoration) {
  using namespace pinfold;
  if (restoration == nullptr) return PINFOLD_OK;
  if (c::callback::of(restoration->cache))
    return c::refuse(errc::in_use_conflict, "a callback of the cache must not end a restoration");
  delete restoration;
  return PINFOLD_OK;
}
}
