// SPDX-License-Identifier: BSD-3-Clause
#include "os/page_bytes.hpp"
#include "os/this_process.hpp"
#include "registrars/verbs/access.hpp"
#include "registrars/verbs/device.hpp"
#include "registrars/verbs/prefetch.hpp"
#include "registrars/verbs/refusal.hpp"

#include <pinfold/registrars/verbs.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <infiniband/verbs.h>
#include <new>
#include <unistd.h>
#include <utility>

namespace pinfold {

static_assert(registrar<verbs_registrar>);

namespace {

constexpr access_flags all_access =
    local_access | access_flags::remote_read | access_flags::remote_write | access_flags::remote_atomic;

access_flags access_on(const verbs_capabilities& device, verbs_paging paging) noexcept {
  if (paging == verbs_paging::implicit) return local_access;
  return device.atomics ? all_access : local_access | access_flags::remote_read | access_flags::remote_write;
}

result<void> check_paging(const verbs_capabilities& device, verbs_paging wanted) noexcept {
  const bool can = wanted == verbs_paging::pinned || (device.on_demand_paging && wanted == verbs_paging::on_demand) ||
                   (device.implicit_on_demand_paging && wanted == verbs_paging::implicit);
  if (!can) return fail(errc::unsupported, "the device does not support this kind of on-demand paging");
  return {};
}

std::size_t bytes_of_pages(const range& memory) noexcept {
  const auto page = os::page_bytes();
  return ((memory.end - 1) / page - memory.begin / page + 1) * page;
}

verbs_registrar::registration_type keys_of(::ibv_mr* region) noexcept { return {region, region->lkey, region->rkey}; }

// Returns null and sets errno on failure.
::ibv_mr* register_dma_buf([[maybe_unused]] ::ibv_pd* domain, [[maybe_unused]] const range& memory,
                           const verbs_dma_buf& from, [[maybe_unused]] unsigned flags) noexcept {
#if defined(PINFOLD_HAS_REG_DMABUF_MR)
  // The pages of a dma-buf belong to its owner: drivers refuse to page them on demand.
  const auto access = static_cast<int>(flags & ~unsigned{IBV_ACCESS_ON_DEMAND});
  ::ibv_mr* const made = ::ibv_reg_dmabuf_mr(domain, from.offset, memory.size(), memory.begin, from.descriptor, access);
  const int native = errno;
#else
  ::ibv_mr* const made = nullptr;
  const int native = EOPNOTSUPP;
#endif
  ::close(from.descriptor);
  errno = native;
  return made;
}

tl::unexpected<error> moved_away() noexcept { return fail(errc::closed, "this registrar was moved from"); }

}  // namespace

struct verbs_registrar::state {
  state(::ibv_pd* of, verbs_registrar_options&& wanted, const verbs_capabilities& says)
      : domain(of), options(std::move(wanted)), device(says) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  // A child of fork(2) shares the parent's device: deregistering would remove the parent's region (R37).
  ~state() {
    if (everything != nullptr && os::this_process() == process) ::ibv_dereg_mr(everything);
  }

  [[nodiscard]] unsigned flags_for(access_flags access) const noexcept {
    unsigned flags = verbs::access_flags(access);
    if (options.windows) flags |= IBV_ACCESS_MW_BIND;
    if (options.relaxed_ordering) flags |= IBV_ACCESS_RELAXED_ORDERING;
    if (options.paging != verbs_paging::pinned) flags |= IBV_ACCESS_ON_DEMAND;
    return flags;
  }

  [[nodiscard]] result<std::optional<verbs_dma_buf>> dma_buf(const range& memory) const noexcept {
    if (options.dma_buf_from) return options.dma_buf_from(memory);
    if (options.dma_buf_of) return options.dma_buf_of(memory);
    return std::nullopt;
  }

  // Returns null and sets errno if the device refuses. Clears `paged` for device memory, which is never paged on
  // demand.
  [[nodiscard]] result<::ibv_mr*> register_memory(const range& memory, unsigned flags, bool& paged) const noexcept {
    const auto from = dma_buf(memory);
    if (!from) return tl::unexpected(from.error());
    if (const auto& buffer = *from) return paged = false, register_dma_buf(domain, memory, *buffer, flags);
    return ibv_reg_mr(domain, reinterpret_cast<void*>(memory.begin), memory.size(), flags);
  }

  result<void> register_everything() noexcept {
    everything = ibv_reg_mr(domain, nullptr, SIZE_MAX, flags_for(local_access));
    if (everything == nullptr) return tl::unexpected(verbs::refused_open(errno, 0, false));
    return {};
  }

  ::ibv_pd* domain;
  verbs_registrar_options options;
  verbs_capabilities device;
  const std::uint64_t process = os::this_process();
  ::ibv_mr* everything = nullptr;             // with implicit paging
  std::atomic<std::uint32_t> regions_now{0};  // only for an error's message
};

verbs_registrar::verbs_registrar(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
verbs_registrar::verbs_registrar(verbs_registrar&&) noexcept = default;
verbs_registrar& verbs_registrar::operator=(verbs_registrar&&) noexcept = default;
verbs_registrar::~verbs_registrar() = default;

result<verbs_registrar> verbs_registrar::create(::ibv_pd* domain, verbs_registrar_options options) noexcept try {
  if (domain == nullptr) return fail(errc::invalid_argument, "the protection domain must not be null");
  const auto device = verbs_capabilities_of(domain->context);
  if (!device) return tl::unexpected(device.error());
  if (auto can = check_paging(*device, options.paging); !can) return tl::unexpected(can.error());
  const bool implicit = options.paging == verbs_paging::implicit;
  if (options.dma_buf_of && options.dma_buf_from)
    return fail(errc::invalid_argument, "only one of dma_buf_of and dma_buf_from may be given");
  if (implicit && (options.dma_buf_of || options.dma_buf_from))
    return fail(errc::unsupported, "a region for the whole address space cannot hold device memory (dma_buf_of)");
  auto made = std::make_unique<state>(domain, std::move(options), *device);
  if (implicit)
    if (auto all = made->register_everything(); !all) return tl::unexpected(all.error());
  return verbs_registrar(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the registrar");
}

registrar_limits verbs_registrar::limits() const noexcept {
  if (!state_) return {.granularity = os::page_bytes()};
  const bool implicit = state_->options.paging == verbs_paging::implicit;
  return {.granularity = os::page_bytes(),
          .max_bytes = implicit ? SIZE_MAX : state_->device.max_mr_bytes,
          .supported = access_on(state_->device, state_->options.paging)};
}

verbs_capabilities verbs_registrar::capabilities() const noexcept {
  return state_ ? state_->device : verbs_capabilities{};
}

result<verbs_registrar::registration_type> verbs_registrar::open(range memory, access_flags access) noexcept {
  if (!state_) return moved_away();
  if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
  if (state_->everything != nullptr) return keys_of(state_->everything);
  bool paged = true;
  const auto made = state_->register_memory(memory, state_->flags_for(access), paged);
  const int native = errno;
  if (!made) return tl::unexpected(made.error());
  if (*made != nullptr) return opened(*made, memory, access, paged);
  const bool full = state_->regions_now.load(std::memory_order_relaxed) + 1 >= state_->device.max_mr;
  const bool pins = state_->options.paging == verbs_paging::pinned;
  return tl::unexpected(verbs::refused_open(native, pins ? bytes_of_pages(memory) : 0, full));
}

result<verbs_registrar::registration_type> verbs_registrar::opened(::ibv_mr* made, const range& memory,
                                                                   access_flags access, bool paged) noexcept {
  state_->regions_now.fetch_add(1, std::memory_order_relaxed);
  const auto keys = keys_of(made);
  if (!paged || !state_->options.prefetch_on_open) return keys;
  const auto fetched = prefetch(keys, memory, access);
  if (fetched || !close(keys)) return keys;  // better without its pages than leaked
  return tl::unexpected(fetched.error());
}

result<void> verbs_registrar::prefetch(const registration_type& registration, range memory, access_flags access,
                                       verbs_prefetch how) noexcept {
  if (!state_) return moved_away();
  if (registration.mr == nullptr) return fail(errc::invalid_argument, "the registration has no memory region");
  if (state_->options.paging == verbs_paging::pinned)
    return fail(errc::unsupported, "the pages of this registrar are pinned: there is nothing to prefetch");
  const auto begin = reinterpret_cast<std::uintptr_t>(registration.mr->addr);
  const bool everything = registration.mr == state_->everything;
  if (memory.empty() || (!everything && !range{begin, begin + registration.mr->length}.contains(memory)))
    return fail(errc::invalid_range, "the range is not inside the registration");
  return verbs::prefetch(state_->domain, registration.lkey, memory, any_write(access), how);
}

result<void> verbs_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return moved_away();
  if (registration.mr == nullptr) return fail(errc::invalid_argument, "the registration has no memory region");
  if (registration.mr == state_->everything) return {};
  const int native = ::ibv_dereg_mr(registration.mr);
  // Removing a device destroys all its objects: the pages are free, though libibverbs keeps its record.
  const bool closed = native == 0 || ((native == EIO || native == ENODEV) && verbs::is_gone(state_->domain->context));
  if (!closed) return tl::unexpected(verbs::refused_close(native, state_->options.windows));
  state_->regions_now.fetch_sub(1, std::memory_order_relaxed);
  return {};
}

}  // namespace pinfold
