// SPDX-License-Identifier: BSD-3-Clause
#include "os/page_bytes.hpp"
#include "registrars/mlock/table.hpp"

#include <pinfold/registrars/mlock.hpp>

#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

namespace pinfold {

static_assert(registrar<mlock_registrar>);

namespace {

range pages_of(const range& memory) noexcept {
  const auto page = os::page_bytes();
  const auto end = memory.end > UINTPTR_MAX - (page - 1) ? memory.end : (memory.end + page - 1) / page * page;
  return {memory.begin / page * page, end};
}

error error_of(const mlocks::refusal& why) noexcept {
  const int native = why.native;
  if (native == EPERM) return {errc::not_permitted, native_kind::posix, native, "this process may not lock memory"};
  if (native == EAGAIN || why.over_limit)
    return {errc::out_of_resources, native_kind::posix, native, "the locked-memory limit is reached (RLIMIT_MEMLOCK)"};
  if (native == ENOMEM) return {errc::invalid_range, native_kind::posix, native, "the memory cannot be accessed"};
  return {errc::driver_error, native_kind::posix, native, "the kernel refused to lock the memory"};
}

tl::unexpected<error> moved_away() noexcept { return fail(errc::closed, "this registrar was moved from"); }

}  // namespace

struct mlock_registrar::state {
  state() = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (!table.is_of_this_process()) return;
    mine.for_each([this](const range& pages) { static_cast<void>(table.unlock(pages)); });
  }

  [[nodiscard]] result<void> usable() const noexcept {
    if (table.is_of_this_process()) return {};
    return fail(errc::closed, "this registrar belongs to the parent process");
  }

  void add(mlocks::range_list::node&& one) noexcept {
    const std::scoped_lock guard(mutex);
    mine.add(std::move(one));
  }
  [[nodiscard]] mlocks::range_list::node take(const range& pages) noexcept {
    const std::scoped_lock guard(mutex);
    return mine.take(pages);
  }

  mlocks::table& table = mlocks::table::here();
  std::mutex mutex;         // guards `mine`
  mlocks::range_list mine;  // the ranges that this registrar has open
};

mlock_registrar::mlock_registrar() : state_(std::make_unique<state>()) {}
mlock_registrar::mlock_registrar(mlock_registrar&&) noexcept = default;
mlock_registrar& mlock_registrar::operator=(mlock_registrar&&) noexcept = default;

mlock_registrar::~mlock_registrar() = default;

registrar_limits mlock_registrar::limits() const noexcept {
  return {.granularity = os::page_bytes(), .supported = local_access};
}

result<mlock_registrar::registration_type> mlock_registrar::open(range memory, access_flags access) noexcept try {
  if (!state_) return moved_away();
  if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
  if (auto fit = state_->usable(); !fit) return tl::unexpected(fit.error());
  const range pages = pages_of(memory);
  auto mine = mlocks::range_list::make(pages);
  if (const auto why = state_->table.lock(pages); why.native != 0) return tl::unexpected(error_of(why));
  state_->add(std::move(mine));
  return registration_type{pages.begin, pages.end};
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the registrar's own records");
}

result<void> mlock_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return moved_away();
  if (auto fit = state_->usable(); !fit) return fit;
  const range pages{registration.begin, registration.end};
  auto mine = state_->take(pages);
  if (mine.empty()) return fail(errc::invalid_argument, "this range is not registered");
  const int native = state_->table.unlock(pages);
  if (native == 0) return {};
  state_->add(std::move(mine));
  return fail_errno(errc::driver_error, native, "the kernel refused to unlock the memory");
}

}  // namespace pinfold
