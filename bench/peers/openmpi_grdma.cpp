// SPDX-License-Identifier: BSD-3-Clause
// The registration cache grdma of Open MPI 4.1, through the inner headers that Debian's package has. Set up as for a
// network with leave_pinned, but registers nothing.
#include "peer_main.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>

extern "C" {
#include "opal_config.h"

#include "opal/constants.h"
#include "opal/mca/base/base.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_params.h"
#include "opal/threads/mutex.h"
}

namespace {

struct registration {
  mca_rcache_base_registration_t super;  // first: Open MPI hands out pointers to it
  std::uint64_t key;
};

// Runs once in the process and is never undone, as the hooks in the C library cannot be undone.
void start_open_mpi() {
  static const bool started = [] {
    if (opal_init(nullptr, nullptr) != OPAL_SUCCESS) return false;
    opal_set_using_threads(true);
    opal_leave_pinned = 1;  // keep idle registrations
    return mca_base_framework_open(&opal_rcache_base_framework, MCA_BASE_OPEN_DEFAULT) == OPAL_SUCCESS;
  }();
  if (!started) throw std::runtime_error("Open MPI cannot be started");
}

class openmpi_subject {
 public:
  static constexpr const char* name = "openmpi";

  openmpi_subject(const bench::region_set& /*regions*/, const bench::setup& how) : how_(how) {
    // Evicting holds the cache's mutex and waits for readers of the tree, and a reader that finds an idle entry waits
    // for that mutex.
    if (how.most != SIZE_MAX && how.threads > 1)
      throw bench::cannot_be_measured("Open MPI's grdma deadlocks when it evicts on more than one thread");
    start_open_mpi();
    static std::atomic<unsigned> caches{0};
    // Modules of one name share one cache.
    const auto own_name = "bench" + std::to_string(caches++);
    mca_rcache_base_resources_t resources{};
    resources.cache_name = const_cast<char*>(own_name.c_str());
    resources.reg_data = this;
    resources.sizeof_reg = sizeof(registration);
    resources.register_mem = register_mem;
    resources.deregister_mem = deregister_mem;
    cache_ = mca_rcache_base_module_create("grdma", this, &resources);
    if (cache_ == nullptr) throw std::runtime_error("Open MPI cannot make a cache of the kind grdma");
  }
  openmpi_subject(const openmpi_subject&) = delete;
  openmpi_subject& operator=(const openmpi_subject&) = delete;
  ~openmpi_subject() { mca_rcache_base_module_destroy(cache_); }

  class user_type {
   public:
    using held = mca_rcache_base_registration_t*;

    explicit user_type(mca_rcache_base_module_t* cache) noexcept : cache_(cache) {}

    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      held found = nullptr;
      const auto status = cache_->rcache_register(cache_, reinterpret_cast<void*>(wanted.address), wanted.bytes, 0,
                                                  MCA_RCACHE_ACCESS_LOCAL_WRITE, &found);
      return status == OPAL_SUCCESS ? found : nullptr;
    }
    [[nodiscard]] std::uint64_t key(held found) const noexcept {
      return found == nullptr ? 0 : reinterpret_cast<const registration*>(found)->key;
    }
    void put(held& found) noexcept {
      if (found != nullptr) static_cast<void>(cache_->rcache_deregister(cache_, found));
    }
    // Invalidates a range that does not begin at the first byte: Open MPI takes that for a mistake while it is in use.
    void forget(held& found) noexcept {
      if (found != nullptr) cache_->rcache_invalidate_range(cache_, found->base + bench::region_bytes / 2, 1);
    }

   private:
    mca_rcache_base_module_t* cache_;
  };

  [[nodiscard]] user_type user() noexcept { return user_type(cache_); }
  [[nodiscard]] std::uint64_t registrations() const noexcept { return registrations_; }
  [[nodiscard]] std::uint64_t deregistrations() const noexcept { return deregistrations_; }

 private:
  // Fails when the device is full; grdma then evicts, and calls again.
  static int register_mem(void* context, void* base, std::size_t /*size*/, mca_rcache_base_registration_t* made) {
    auto* const self = static_cast<openmpi_subject*>(context);
    if (self->open_.fetch_add(1, std::memory_order_relaxed) >= self->how_.most) {
      self->open_.fetch_sub(1, std::memory_order_relaxed);
      return OPAL_ERR_OUT_OF_RESOURCE;
    }
    self->registrations_.fetch_add(1, std::memory_order_relaxed);
    if (self->how_.register_delay.count() > 0) std::this_thread::sleep_for(self->how_.register_delay);
    reinterpret_cast<registration*>(made)->key = reinterpret_cast<std::uintptr_t>(base);
    return OPAL_SUCCESS;
  }
  static int deregister_mem(void* context, mca_rcache_base_registration_t* /*gone*/) {
    auto* const self = static_cast<openmpi_subject*>(context);
    self->deregistrations_.fetch_add(1, std::memory_order_relaxed);
    if (self->how_.deregister_delay.count() > 0) std::this_thread::sleep_for(self->how_.deregister_delay);
    self->open_.fetch_sub(1, std::memory_order_relaxed);
    return OPAL_SUCCESS;
  }

  bench::setup how_;
  std::atomic<std::uint64_t> open_{0};
  std::atomic<std::uint64_t> registrations_{0};
  std::atomic<std::uint64_t> deregistrations_{0};
  mca_rcache_base_module_t* cache_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) { return bench::peer_main<openmpi_subject>(argc, argv); }
