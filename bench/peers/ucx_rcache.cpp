// SPDX-License-Identifier: BSD-3-Clause
// The registration cache of UCX, set up as in its InfiniBand transport, but registers nothing.
#include "peer_main.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>

#include <sys/mman.h>

extern "C" {
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>
}

namespace {

struct region {
  ucs_rcache_region_t super;  // first: UCX hands out pointers to it
  std::uint64_t key;
};

class ucx_subject {
 public:
  static constexpr const char* name = "ucx";

  ucx_subject(const bench::region_set& /*regions*/, const bench::setup& how) : how_(how) {
    ucs_rcache_params_t params{};
    params.region_struct_size = sizeof(region);
    params.alignment = UCS_RCACHE_MIN_ALIGNMENT;
    params.max_alignment = static_cast<std::size_t>(::getpagesize());
    params.ucm_events = UCM_EVENT_VM_UNMAPPED;
    params.ucm_event_priority = 1000;
    params.ops = &ops;
    params.context = this;
    // UCX 1.13 ignores its limits where this flag is set. The check itself is off unless an option is set.
    params.flags = how.most == SIZE_MAX ? UCS_RCACHE_FLAG_NO_PFN_CHECK : 0;
    params.max_regions = how.most == SIZE_MAX ? ~0UL : how.most;
    params.max_size = SIZE_MAX;
    params.max_unreleased = SIZE_MAX;
    if (ucs_rcache_create(&params, "bench", nullptr, &cache_) != UCS_OK)
      throw std::runtime_error("UCX cannot make a registration cache");
  }
  ucx_subject(const ucx_subject&) = delete;
  ucx_subject& operator=(const ucx_subject&) = delete;
  ~ucx_subject() { ucs_rcache_destroy(cache_); }

  class user_type {
   public:
    using held = ucs_rcache_region_t*;

    explicit user_type(ucs_rcache_t* cache) noexcept : cache_(cache) {}

    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      held found = nullptr;
      const auto status = ucs_rcache_get(cache_, reinterpret_cast<void*>(wanted.address), wanted.bytes,
                                         PROT_READ | PROT_WRITE, nullptr, &found);
      return status == UCS_OK ? found : nullptr;
    }
    [[nodiscard]] std::uint64_t key(held found) const noexcept {
      return found == nullptr ? 0 : reinterpret_cast<const region*>(found)->key;
    }
    void put(held& found) noexcept {
      if (found != nullptr) ucs_rcache_region_put(cache_, found);
    }
    void forget(held& found) noexcept {
      if (found != nullptr) ucs_rcache_region_invalidate(cache_, found, [](void*) {}, nullptr);
    }

   private:
    ucs_rcache_t* cache_;
  };

  [[nodiscard]] user_type user() noexcept { return user_type(cache_); }
  [[nodiscard]] std::uint64_t registrations() const noexcept { return registrations_; }
  [[nodiscard]] std::uint64_t deregistrations() const noexcept { return deregistrations_; }

 private:
  static ucs_status_t mem_reg(void* context, ucs_rcache_t* /*cache*/, void* /*arg*/, ucs_rcache_region_t* made,
                              std::uint16_t /*flags*/) {
    auto* const self = static_cast<ucx_subject*>(context);
    self->registrations_.fetch_add(1, std::memory_order_relaxed);
    if (self->how_.register_delay.count() > 0) std::this_thread::sleep_for(self->how_.register_delay);
    reinterpret_cast<region*>(made)->key = made->super.start;
    return UCS_OK;
  }
  static void mem_dereg(void* context, ucs_rcache_t* /*cache*/, ucs_rcache_region_t* /*gone*/) {
    auto* const self = static_cast<ucx_subject*>(context);
    self->deregistrations_.fetch_add(1, std::memory_order_relaxed);
    if (self->how_.deregister_delay.count() > 0) std::this_thread::sleep_for(self->how_.deregister_delay);
  }
  static void dump_region(void* /*context*/, ucs_rcache_t* /*cache*/, ucs_rcache_region_t* /*shown*/, char* text,
                          std::size_t most) {
    if (most > 0) text[0] = '\0';
  }
  static constexpr ucs_rcache_ops_t ops{mem_reg, mem_dereg, dump_region};

  bench::setup how_;
  std::atomic<std::uint64_t> registrations_{0};
  std::atomic<std::uint64_t> deregistrations_{0};
  ucs_rcache_t* cache_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) { return bench::peer_main<ucx_subject>(argc, argv); }
