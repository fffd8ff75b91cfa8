// SPDX-License-Identifier: BSD-3-Clause
#include "os/this_process.hpp"
#include "registrars/verbs/access.hpp"
#include "registrars/verbs/device.hpp"

#include <pinfold/registrars/verbs.hpp>

#include <cerrno>
#include <cstdint>
#include <infiniband/verbs.h>
#include <new>
#include <utility>

namespace pinfold {

namespace {

error refused_window(int native) noexcept {
  switch (native) {
    case EOPNOTSUPP:
    case ENOSYS: return {errc::unsupported, native_kind::posix, native, "the device has no memory windows"};
    case ENOMEM:
    case EAGAIN:
    case ENOSPC:
      return {errc::out_of_resources, native_kind::posix, native, "the device has no room for a memory window"};
    default: return {errc::driver_error, native_kind::posix, native, "the device refused the memory window"};
  }
}

result<void> post_without_completion(::ibv_qp* pair, ::ibv_send_wr& request) noexcept {
  ::ibv_send_wr* refused = nullptr;
  const int native = ::ibv_post_send(pair, &request, &refused);
  if (native == 0) return {};
  return fail_errno(errc::driver_error, native, "the queue pair does not take the request that binds a window");
}

::ibv_send_wr request_to_bind(::ibv_mw* window, std::uint32_t key, ::ibv_mr* region, const range& memory,
                              access_flags access) noexcept {
  constexpr unsigned of_peers = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  ::ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = window;
  request.bind_mw.rkey = key;
  request.bind_mw.bind_info = {region, memory.begin, memory.size(), verbs::access_flags(access) & of_peers};
  return request;
}

result<void> check_window(const ::ibv_qp* pair, const ::ibv_mr* region, const range& memory,
                          access_flags access) noexcept {
  if (pair == nullptr || region == nullptr)
    return fail(errc::invalid_argument, "a window needs a queue pair and a registration");
  if (!any_remote(access)) return fail(errc::invalid_argument, "a window needs remote access");
  const auto begin = reinterpret_cast<std::uintptr_t>(region->addr);
  if (memory.empty() || !range{begin, begin + region->length}.contains(memory))
    return fail(errc::invalid_range, "the window is not inside the registration");
  return {};
}

}  // namespace

struct verbs_window::state {
  state() = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() { static_cast<void>(free()); }

  // A child of fork(2) shares the parent's device (R37). Removing a device destroys all its objects.
  result<void> free() noexcept {
    if (window == nullptr) return {};
    if (os::this_process() != process) return fail(errc::closed, "the window belongs to the parent of this process");
    ::ibv_context* const context = window->context;
    const int native = ::ibv_dealloc_mw(window);
    const bool freed = native == 0 || ((native == EIO || native == ENODEV) && verbs::is_gone(context));
    if (!freed) return fail_errno(errc::driver_error, native, "the device refused to free the memory window");
    window = nullptr;
    return {};
  }

  ::ibv_mw* window = nullptr;
  std::uint32_t key = 0;
  const std::uint64_t process = os::this_process();
};

verbs_window::verbs_window(std::shared_ptr<state> made) noexcept : state_(std::move(made)) {}

result<verbs_window> verbs_window::bind(::ibv_qp* pair, const verbs_registrar::registration_type& registration,
                                        range memory, access_flags access, post_function post) noexcept try {
  if (auto right = check_window(pair, registration.mr, memory, access); !right) return tl::unexpected(right.error());
  auto made = std::make_shared<state>();
  made->window = ::ibv_alloc_mw(registration.mr->pd, IBV_MW_TYPE_2);
  if (made->window == nullptr) return tl::unexpected(refused_window(errno));
  made->key = ::ibv_inc_rkey(made->window->rkey);
  auto request = request_to_bind(made->window, made->key, registration.mr, memory, access);
  auto bound = post ? post(pair, request) : post_without_completion(pair, request);
  if (!bound) return tl::unexpected(bound.error());
  return verbs_window(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the window");
}

std::uint32_t verbs_window::rkey() const noexcept { return state_ ? state_->key : 0; }

result<void> verbs_window::withdraw() noexcept {
  if (!state_) return {};
  return state_->free();
}

}  // namespace pinfold
