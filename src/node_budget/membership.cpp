// SPDX-License-Identifier: BSD-3-Clause
// Joins an account, and leaves it.
#include "node_budget/membership.hpp"

#include "node_budget/clock.hpp"
#include "node_budget/forks.hpp"
#include "os/check.hpp"
#include "os/no_fork.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sys/random.h>
#include <thread>
#include <utility>

namespace pinfold::node {

namespace {

// A number for one membership. It need not be secret.
std::uint64_t new_owner() noexcept {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<std::uint64_t>(now_ns()) ^ reinterpret_cast<std::uintptr_t>(&number);
  return number | 1U;
}

auto fail_unlockable(int native) noexcept {
  return fail_errno(os::code_for(native), native, "cannot lock the account's file");
}

void write_name(slot& to, std::string_view as) noexcept {
  std::array<std::uint64_t, std::tuple_size_v<decltype(slot::name)>> words{};
  std::memcpy(words.data(), as.data(), std::min(as.size(), sizeof words - 1));
  for (std::size_t i = 0; i < words.size(); ++i) to.name[i].store(words[i], std::memory_order_seq_cst);
}

}  // namespace

// Lets one process at a time open an account, so that only the first sets the maximum. Waits without what makes a fork
// wait, as another process may be stopped while it opens the account.
result<std::unique_ptr<membership>> membership::join(std::string name, std::uint64_t max_units, std::string_view as) {
  using namespace std::chrono_literals;
  constexpr auto longest = 1s;
  auto path = path_of(name);
  if (!path) return tl::unexpected(path.error());
  const auto end = std::chrono::steady_clock::now() + longest;
  for (;;) {
    auto joined = try_join(name, *path, max_units, as);
    if (!joined || *joined) return joined;
    if (std::chrono::steady_clock::now() > end)
      return fail(errc::timed_out, "another process has been opening the account for a second");
    std::this_thread::sleep_for(1ms);
  }
}

// Returns null while another process opens the account.
result<std::unique_ptr<membership>> membership::try_join(const std::string& name, const std::string& path,
                                                         std::uint64_t max_units, std::string_view as) {
  const os::no_fork until_listed;  // forks that began before `forks` watched them
  forks::watch forks;
  if (const int native = forks.refusal(); native != 0)
    return fail_errno(errc::out_of_resources, native, "no memory to watch for forks");
  auto file = shared_file::open(path, max_units);
  if (!file) return tl::unexpected(file.error());
  std::unique_ptr<membership> made(new membership(name, path, std::move(*file)));
  if (!made->file_.try_lock(&made->file_->magic)) {
    if (errno != EAGAIN) return fail_unlockable(errno);
    return std::unique_ptr<membership>();
  }
  static_cast<void>(made->reclaim());
  auto joined = made->agree(max_units);
  if (joined) joined = made->claim_slot(as);
  if (joined) joined = made->end_opening();
  if (!joined) return tl::unexpected(joined.error());  // closes the file, and so drops all locks
  forks.add(*made);
  return made;
}

// Unlocks the account: otherwise no other process could open it while this one lives.
result<void> membership::end_opening() noexcept {
  PINFOLD_ASSERT(mine_ != nullptr, "a membership has its slot before others open the account");
  if (file_.unlock(&file_->magic)) return {};
  const int native = errno;
  std::exchange(mine_, nullptr)->owner.store(0, std::memory_order_seq_cst);
  return fail_unlockable(native);
}

result<void> membership::agree(std::uint64_t max_units) noexcept {
  if (max_units == 0 || file_->max_units.load(std::memory_order_seq_cst) == max_units) return {};
  if (members() > 0) return fail(errc::invalid_argument, "the account has members, and another maximum");
  return set_max(max_units);
}

result<void> membership::claim_slot(std::string_view as) noexcept {
  PINFOLD_ASSERT(mine_ == nullptr && owner_ == 0, "a membership claims one slot");
  int native = EAGAIN;
  for (slot& one : file_->members) {
    if (one.owner.load(std::memory_order_seq_cst) != 0 || one.pending.load(std::memory_order_seq_cst) != 0) continue;
    if (!file_.try_lock(&one)) {
      native = errno == EAGAIN ? native : errno;
      continue;
    }
    one.process.store(self_.pid, std::memory_order_seq_cst);
    one.started.store(self_.started, std::memory_order_seq_cst);
    one.stack.store(self_.stack, std::memory_order_seq_cst);
    one.namespace_of_process.store(self_.namespace_inode, std::memory_order_seq_cst);
    one.waiting_since.store(0, std::memory_order_seq_cst);
    one.waits_for.store(0, std::memory_order_seq_cst);
    one.wants_until.store(0, std::memory_order_seq_cst);
    one.asked.store(0, std::memory_order_seq_cst);
    one.refused.store(0, std::memory_order_seq_cst);
    write_name(one, as);
    owner_ = new_owner();
    one.owner.store(owner_, std::memory_order_seq_cst);
    mine_ = &one;
    known_members_.store(members(), std::memory_order_relaxed);
    return {};
  }
  if (native != EAGAIN) return fail_unlockable(native);
  return fail(errc::out_of_resources, "the account has 256 members");
}

result<void> membership::set_max(std::uint64_t max_units) noexcept {
  if (left()) return fail(errc::closed, "the account was opened by the parent process");
  if (max_units == 0 || max_units > total::most_units)
    return fail(errc::invalid_argument, "a node budget's maximum is at least 4096 bytes");
  file_->max_units.store(max_units, std::memory_order_seq_cst);
  return {};
}

// Closes the descriptor after the slot is free, and before a child can inherit it without finding it listed. If there
// is no slot, `join` already watches forks.
membership::~membership() {
  if (mine_ == nullptr || left()) return;
  forks::watch forks;
  forks.remove(*this);
  os::scoped_lock guard(mutex_);
  if (still_mine()) {
    static_cast<void>(add(-static_cast<std::int64_t>(mine_->units.load(std::memory_order_seq_cst))));
    mine_->owner.store(0, std::memory_order_seq_cst);
  }
  file_.close();
}

bool membership::still_mine() const noexcept { return mine_->owner.load(std::memory_order_seq_cst) == owner_; }

std::size_t membership::members() const noexcept {
  return static_cast<std::size_t>(std::count_if(file_->members.begin(), file_->members.end(), [](const slot& one) {
    return one.owner.load(std::memory_order_seq_cst) != 0;
  }));
}

std::size_t membership::max_bytes() const noexcept { return file_->max_units.load(std::memory_order_seq_cst) * unit; }

std::size_t membership::used_bytes() const noexcept {
  return total::of(file_->taken.load(std::memory_order_seq_cst)).units * unit;
}

}  // namespace pinfold::node
