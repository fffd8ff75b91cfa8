// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/cuda_host.hpp>

#include "cuda/context.hpp"
#include "os/page_bytes.hpp"
#include "registrars/cuda_host/pieces.hpp"

#include <mutex>
#include <unistd.h>

namespace pinfold {

using cuda::primary_context;
using cuda::status;
using cuda_host::piece;
using cuda_host::registered;

static_assert(registrar<cuda_host_registrar>);

struct cuda_host_registrar::state {
  explicit state(cuda_host_registrar_options chosen) noexcept : options(chosen) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state();

  const cuda_host_registrar_options options;
  cuda::device_context device;
};

namespace {

constexpr auto overlap_text = "the range overlaps memory registered with CUDA";

bool is_gone(const registered& one) noexcept { return one.in->is_over(one.life); }

result<void> may_share(const piece& there, const registered& as, const piece& wanted) noexcept {
  const bool inside = there.begin <= wanted.begin && wanted.end <= there.end;
  if (inside && (wanted.read_only || !there.read_only) && !is_gone(as)) return {};
  return cuda::fail_cuda(status::host_memory_already_registered, overlap_text, errc::already_mapped);
}

error refusal(status answer) noexcept {
  if (answer == status::host_memory_already_registered)
    return cuda::as_error(answer, overlap_text, errc::already_mapped);
  if (answer == status::invalid_value)
    return cuda::as_error(answer, "the driver cannot lock this memory", errc::invalid_range);
  return cuda::as_error(answer, "the driver refuses to register the memory");
}

result<registered> make(std::shared_ptr<const primary_context> with, const piece& wanted) noexcept {
  const primary_context& in = *with;
  registered made{.at = 0, .in = std::move(with), .life = in.life()};
  auto* const memory = reinterpret_cast<void*>(wanted.begin);
  const unsigned flags = cuda::host_register_portable | cuda::host_register_device_map |
                         (wanted.read_only ? cuda::host_register_read_only : 0U);
  bool done = false;
  const auto answer = in.with([&] {
    const auto got = in.calls().mem_host_register(memory, wanted.end - wanted.begin, flags);
    done = got == status::success;
    return done ? in.calls().mem_host_get_device_pointer(&made.at, memory, 0) : got;
  });
  if (answer == status::success) return made;
  if (done) static_cast<void>(in.with([&] { return in.calls().mem_host_unregister(memory); }));
  return tl::unexpected(refusal(answer));
}

result<void> unmake(const piece& gone, const registered& as) noexcept {
  if (is_gone(as)) return {};
  const auto& calls = as.in->calls();
  auto undone = status::unknown;  // kept apart: if only restoring the context fails, the memory is unregistered
  const auto answer =
      as.in->with([&] { return undone = calls.mem_host_unregister(reinterpret_cast<void*>(gone.begin)); });
  if (undone == status::success || cuda::context_gone(answer)) return {};
  return cuda::checked(answer, "the driver refuses to unregister the memory");
}

}  // namespace

cuda_host_registrar::state::~state() {
  if (device.retained() != nullptr) cuda_host::all_pieces().give_back_all(this, unmake);
}

cuda_host_registrar::cuda_host_registrar(cuda_host_registrar_options options)
    : state_(std::make_unique<state>(options)) {}
cuda_host_registrar::cuda_host_registrar(cuda_host_registrar&&) noexcept = default;
cuda_host_registrar& cuda_host_registrar::operator=(cuda_host_registrar&&) noexcept = default;
cuda_host_registrar::~cuda_host_registrar() = default;

registrar_limits cuda_host_registrar::limits() const noexcept {
  return {.granularity = os::page_bytes(), .supported = local_access};
}

result<cuda_host_registrar::registration_type> cuda_host_registrar::open(range memory, access_flags access) noexcept {
  if (!state_) return fail(errc::closed, "this registrar was moved from");
  if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
  const auto in = state_->device.get(state_->options.device);
  if (!in) return tl::unexpected(in.error());
  const piece wanted{memory.begin, memory.end, state_->options.read_only};
  registration_type made{};
  const auto number = cuda_host::all_pieces().take(
      state_.get(), wanted, [&](auto& all) { return cuda_host::first_overlap(all, wanted); },
      [&](auto there) { return may_share(there->first, there->second.item, wanted); },
      [&] { return make(state_->device.shared(), wanted); },
      [&](auto there) { made.device_address = there->second.item.at + (wanted.begin - there->first.begin); });
  if (!number) return tl::unexpected(number.error());
  made.number = *number;
  return made;
}

result<void> cuda_host_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return fail(errc::closed, "this registrar was moved from");
  if (state_->device.retained() == nullptr) return fail(errc::invalid_argument, "this memory is not registered");
  return cuda_host::all_pieces().give_back(registration.number, unmake);
}

}  // namespace pinfold
