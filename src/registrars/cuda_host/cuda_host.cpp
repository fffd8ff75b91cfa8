// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/cuda_host.hpp>

#include "cuda/context.hpp"
#include "cuda/pointer.hpp"
#include "os/page_bytes.hpp"
#include "registrars/cuda_host/pieces.hpp"

#include <mutex>
#include <optional>
#include <unistd.h>

namespace pinfold {

using cuda::primary_context;
using cuda::status;
using cuda_host::piece;
using cuda_host::piece_table;
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

result<void> may_share(const piece& there, const piece_table::entry& as, const piece& wanted) noexcept {
  const bool inside = there.begin <= wanted.begin && wanted.end <= there.end;
  if (inside && (wanted.read_only || !there.read_only) && !as.outdated && !is_gone(as.item)) return {};
  return cuda::fail_cuda(status::host_memory_already_registered, overlap_text, errc::already_mapped);
}

error refusal(status answer) noexcept {
  if (answer == status::host_memory_already_registered)
    return cuda::as_error(answer, overlap_text, errc::already_mapped);
  if (answer == status::invalid_value)
    return cuda::as_error(answer, "the driver cannot lock this memory", errc::invalid_range);
  return cuda::as_error(answer, "the driver refuses to register the memory");
}

result<void> unmake(const piece& gone, const registered& as) noexcept {
  if (is_gone(as)) return {};
  const auto& calls = as.in->calls();
  auto undone = status::unknown;  // separate: if only restoring the context fails, the memory is unregistered
  const auto answer =
      as.in->with([&] { return undone = calls.mem_host_unregister(reinterpret_cast<void*>(gone.begin)); });
  if (undone == status::success || cuda::context_gone(answer)) return {};
  return cuda::checked(answer, "the driver refuses to unregister the memory");
}

result<registered> make(std::shared_ptr<const primary_context> with, const piece& wanted,
                        std::optional<registered>& left) noexcept {
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
  if (done && !unmake(wanted, made)) left = std::move(made);
  return tl::unexpected(refusal(answer));
}

/// Returns the device's address of memory that the application has registered, or allocated by the driver; 0 if
/// neither.
cuda::device_pointer address_of_others(const primary_context& in, const piece& wanted) noexcept {
  const auto& calls = in.calls();
  const auto there = cuda::facts_of(calls, wanted.begin);
  if (!there || there->type != cuda::memory_type::host_memory || there->managed) return 0;
  if (wanted.begin < there->base || there->base + there->size < wanted.end) return 0;
  cuda::device_pointer at = 0;
  void* const memory = reinterpret_cast<void*>(wanted.begin);
  const auto answer = in.with([&] { return calls.mem_host_get_device_pointer(&at, memory, 0); });
  return answer == status::success ? at : 0;
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
  cuda::device_pointer others = 0;
  auto& pieces = cuda_host::all_pieces();
  const auto number = pieces.take(
      state_.get(), wanted, [&](auto& all) { return pieces.first_in_the_way(all, wanted); },
      [&](auto there) { return may_share(there->first, there->second, wanted); },
      [&](auto& left) -> result<registered> {
        others = address_of_others(**in, wanted);
        if (others != 0) return fail(errc::already_mapped, overlap_text);
        return make(state_->device.shared(), wanted, left);
      },
      [&](auto there) { made.device_address = there->second.item.at + (wanted.begin - there->first.begin); }, unmake);
  if (others != 0) return registration_type{others, 0};
  if (!number) return tl::unexpected(number.error());
  made.number = *number;
  return made;
}

result<void> cuda_host_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return fail(errc::closed, "this registrar was moved from");
  if (!may_keep(registration)) return {};
  if (state_->device.retained() == nullptr) return fail(errc::invalid_argument, "this memory is not registered");
  return cuda_host::all_pieces().give_back(registration.number, unmake);
}

void cuda_host_registrar::invalidated(const registration_type& registration) noexcept {
  cuda_host::all_pieces().outdate(registration.number);
}

}  // namespace pinfold
