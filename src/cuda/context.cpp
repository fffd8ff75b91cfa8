// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/context.hpp"

#include "os/this_process.hpp"

#include <cerrno>
#include <new>

namespace pinfold::cuda {

primary_context::primary_context(const driver_table& calls, int ordinal, device number, context held,
                                 const uuid& id) noexcept
    : calls_(calls), ordinal_(ordinal), number_(number), held_(held), id_(id), process_(os::this_process()) {}

primary_context::~primary_context() {
  if (!inherited()) static_cast<void>(calls_.device_primary_ctx_release(number_));
}

bool primary_context::inherited() const noexcept { return os::this_process() != process_; }

std::uint64_t primary_context::life() const noexcept {
  unsigned long long id = 0;
  if (calls_.ctx_get_id == nullptr || calls_.ctx_get_id(held_, &id) != status::success) return 0;
  return id;
}

bool primary_context::is_over(std::uint64_t life) const noexcept {
  unsigned long long now = 0;
  if (calls_.ctx_get_id == nullptr) return false;
  const status answer = calls_.ctx_get_id(held_, &now);
  return answer == status::success ? life != 0 && now != life : context_gone(answer);
}

result<std::shared_ptr<primary_context>> primary_context::of(int ordinal) noexcept {
  const auto there = driver();
  if (!there) return tl::unexpected(there.error());
  const driver_table& calls = **there;
  device number{};
  if (const status answer = calls.device_get(&number, ordinal); answer != status::success)
    return fail_cuda(answer, "no CUDA device has this number", errc::invalid_argument);
  uuid id{};
  if (auto got = checked(calls.device_get_uuid(&id, number), "cannot read the UUID of the CUDA device"); !got)
    return tl::unexpected(got.error());
  context held = nullptr;
  const auto retained =
      checked(calls.device_primary_ctx_retain(&held, number), "cannot retain the device's primary context");
  if (!retained) return tl::unexpected(retained.error());
  constexpr auto no_memory = "no memory for the record of a CUDA context";
  auto* const made = new (std::nothrow) primary_context(calls, ordinal, number, held, id);
  if (made == nullptr) {
    static_cast<void>(calls.device_primary_ctx_release(number));
    return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
  }
  try {
    return std::shared_ptr<primary_context>(made);  // deletes the context if the constructor throws
  } catch (const std::bad_alloc&) {
    return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
  }
}

result<const primary_context*> device_context::get(int ordinal) noexcept {
  constexpr auto no_driver = "a CUDA context does not survive fork(2)";
  const auto here = os::this_process();
  std::uint64_t begun = 0;
  if (!process_.compare_exchange_strong(begun, here, std::memory_order_seq_cst) && begun != here)
    return fail(errc::unsupported, no_driver);
  const std::scoped_lock guard(mutex_);
  if (!retained_) {
    auto made = primary_context::of(ordinal);
    if (!made) return tl::unexpected(made.error());
    retained_ = std::move(*made);
  }
  return retained_.get();
}

const primary_context* device_context::retained() const noexcept {
  if (process_.load(std::memory_order_seq_cst) != os::this_process()) return nullptr;
  const std::scoped_lock guard(mutex_);
  return retained_.get();
}

std::shared_ptr<const primary_context> device_context::shared() const noexcept {
  if (process_.load(std::memory_order_seq_cst) != os::this_process()) return nullptr;
  const std::scoped_lock guard(mutex_);
  return retained_;
}

}  // namespace pinfold::cuda
