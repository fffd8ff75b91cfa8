// SPDX-License-Identifier: BSD-3-Clause
#include "os/page_bytes.hpp"
#include "registrars/libfabric/access.hpp"
#include "registrars/libfabric/keys.hpp"
#include "registrars/libfabric/owed.hpp"
#include "registrars/libfabric/refusal.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <atomic>
#include <cerrno>
#include <new>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace pinfold {

static_assert(registrar<libfabric_registrar>);
static_assert(static_cast<int>(libfabric_interface::cuda) == FI_HMEM_CUDA);
static_assert(static_cast<int>(libfabric_interface::synapse_ai) == FI_HMEM_SYNAPSEAI);

namespace {

// The program may have registered memory itself, with the same first key and those after it.
constexpr int tries_for_a_key = 1024;

void set_device(::fi_mr_attr& of, const libfabric_device_memory& memory) noexcept {
  of.iface = static_cast<::fi_hmem_iface>(memory.interface);
  of.device.reserved = 0;
  of.device.cuda = memory.device;  // the union has one member for all interfaces' device numbers
}

tl::unexpected<error> moved_away() noexcept { return fail(errc::closed, "this registrar was moved from"); }

}  // namespace

struct libfabric_registrar::state {
  using note = libfabric::owed_regions::note;

  state(::fid_domain* of, libfabric_registrar_options&& wanted, const libfabric_rules& demanded)
      : domain(of),
        options(std::move(wanted)),
        rules(demanded),
        keys(rules.key_bytes, options.first_key ? *options.first_key : libfabric::random_key()) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() { close_owed(); }

  void close_owed() noexcept {
    owed.retry([this](std::uint64_t key) {
      if (!rules.provider_keys) keys.give_back(key);
    });
  }

  [[nodiscard]] std::uint64_t flags_for(access_flags access) const noexcept {
    const auto flags = libfabric::access_flags(access);
    return rules.collective && (flags & (FI_SEND | FI_RECV)) != 0 ? flags | FI_COLLECTIVE : flags;
  }

  // Enables a region, which is made disabled with FI_MR_ENDPOINT. Returns 0, or a negative fi_errno with `region` null
  // if nothing of it is left.
  int enable(::fid_mr*& region, std::uint64_t key, note& spare) noexcept {
    if (!rules.endpoint) return 0;
    int refused = fi_mr_bind(region, &options.endpoint->fid, 0);
    if (refused == 0) refused = fi_mr_enable(region);
    if (refused == 0) return 0;
    const int closed = fi_close(&region->fid);
    if (libfabric::stays_open(closed)) owed.add(std::move(spare), {region, key});
    if (closed == 0) region = nullptr;
    return refused;
  }

  // Returns 0, or a negative fi_errno with `made` null if nothing of the region is left.
  int register_memory(::fi_mr_attr& what, ::fid_mr*& made, note& spare) noexcept {
    const int refused = fi_mr_regattr(domain, &what, 0, &made);
    if (refused == 0) return enable(made, what.requested_key, spare);
    made = nullptr;
    return refused;
  }

  int register_with_own_key(::fi_mr_attr& what, ::fid_mr*& made, note& spare) {
    for (int tries = 0; tries < tries_for_a_key; ++tries) {
      const auto key = keys.take();
      if (!key) return -FI_ENOSPC;
      what.requested_key = *key;
      const int refused = register_memory(what, made, spare);
      if (refused == 0) return 0;
      if (made != nullptr) return refused;
      keys.give_back(*key);
      if (refused != -FI_ENOKEY) return refused;
    }
    return -FI_ENOKEY;
  }

  // fi_mr(3) promises the requested key; a provider need not return it if peers have no access.
  [[nodiscard]] registration_type described(::fid_mr* region, const ::fi_mr_attr& what) const noexcept {
    const auto key = rules.provider_keys ? fi_mr_key(region) : what.requested_key;
    const auto begin = reinterpret_cast<std::uintptr_t>(what.mr_iov->iov_base);
    return {region, fi_mr_desc(region), key, rules.virtual_addresses ? 0 : begin};
  }

  ::fid_domain* domain;
  libfabric_registrar_options options;
  libfabric_rules rules;
  libfabric::keys keys;
  libfabric::owed_regions owed;
  std::atomic<std::size_t> regions_now{0};  // only for an error's message
};

libfabric_registrar::libfabric_registrar(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
libfabric_registrar::libfabric_registrar(libfabric_registrar&&) noexcept = default;
libfabric_registrar& libfabric_registrar::operator=(libfabric_registrar&&) noexcept = default;
libfabric_registrar::~libfabric_registrar() = default;

result<libfabric_registrar> libfabric_registrar::create(::fid_domain* domain, const ::fi_info* info,
                                                        libfabric_registrar_options options) noexcept try {
  if (domain == nullptr) return fail(errc::invalid_argument, "the domain must not be null");
  const auto rules = libfabric_rules_of(info);
  if (!rules) return tl::unexpected(rules.error());
  if (rules->endpoint && options.endpoint == nullptr)
    return fail(
        errc::invalid_argument,
        "the domain's memory regions need an endpoint (FI_MR_ENDPOINT): set libfabric_registrar_options::endpoint");
  if (options.device_of && !rules->device_memory)
    return fail(errc::unsupported, "the domain was opened without device memory (FI_HMEM)");
  if (!options.accept_second_cache && libfabric_caches_too(info))
    return fail(errc::unsupported,
                "libfabric's own registration cache ignores the requested access and withdrawn keys: call "
                "turn_off_libfabric_cache() before the first fi_getinfo, or set accept_second_cache");
  return libfabric_registrar(std::make_unique<state>(domain, std::move(options), *rules));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the registrar");
}

registrar_limits libfabric_registrar::limits() const noexcept {
  if (!state_) return {.granularity = os::page_bytes()};
  return {
      .granularity = os::page_bytes(), .max_bytes = state_->options.max_bytes, .supported = state_->rules.supported};
}

libfabric_rules libfabric_registrar::rules() const noexcept { return state_ ? state_->rules : libfabric_rules{}; }

result<libfabric_registrar::registration_type> libfabric_registrar::open(range memory, access_flags access) noexcept
    try {
  if (!state_) return moved_away();
  if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
  const ::iovec where{reinterpret_cast<void*>(memory.begin), memory.size()};
  ::fi_mr_attr what{};
  what.mr_iov = &where;
  what.iov_count = 1;
  what.access = state_->flags_for(access);
  if (state_->options.device_of)
    if (const auto device = state_->options.device_of(memory)) set_device(what, *device);
  libfabric::owed_regions::note spare;
  if (state_->rules.endpoint) {  // otherwise no region must be enabled, and none can be owed
    state_->close_owed();
    spare = libfabric::owed_regions::make_note();
  }
  ::fid_mr* made = nullptr;
  const int refused = state_->rules.provider_keys ? state_->register_memory(what, made, spare)
                                                  : state_->register_with_own_key(what, made, spare);
  if (refused != 0) {
    const auto now = state_->regions_now.load(std::memory_order_relaxed);
    return tl::unexpected(
        libfabric::refused_open(-refused, state_->rules.regions != 0 && now >= state_->rules.regions));
  }
  state_->regions_now.fetch_add(1, std::memory_order_relaxed);
  return state_->described(made, what);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory to record the key");
}

result<void> libfabric_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return moved_away();
  if (registration.mr == nullptr) return fail(errc::invalid_argument, "the registration has no memory region");
  const int refused = fi_close(&registration.mr->fid);
  if (libfabric::stays_open(refused)) return tl::unexpected(libfabric::refused_close(-refused));
  if (refused == 0 && !state_->rules.provider_keys) state_->keys.give_back(registration.key);
  state_->regions_now.fetch_sub(1, std::memory_order_relaxed);
  return {};
}

}  // namespace pinfold
