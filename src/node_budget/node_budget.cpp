// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/node_budget.hpp>
#include <pinfold/settings.hpp>

#include "node_budget/clock.hpp"
#include "node_budget/forks.hpp"
#include "node_budget/membership.hpp"
#include "node_budget/process_limits.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace pinfold {

namespace {

std::string name_in(const node::slot& one) {
  std::array<std::uint64_t, std::tuple_size_v<decltype(node::slot::name)>> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = one.name[i].load(std::memory_order_seq_cst);
  std::array<char, sizeof words + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof words);
  return text.data();
}

node_budget_member describe_member(const node::slot& one, std::int64_t now) {
  node_budget_member member;
  member.pid = static_cast<std::int32_t>(one.process.load(std::memory_order_seq_cst));
  member.name = name_in(one);
  member.bytes = one.units.load(std::memory_order_seq_cst) * node::unit;
  if (const auto since = one.waiting_since.load(std::memory_order_seq_cst); since != 0)
    member.waiting =
        std::max(std::chrono::milliseconds(1),
                 std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(now - since)));
  member.asked = one.asked.load(std::memory_order_seq_cst);
  member.refused = one.refused.load(std::memory_order_seq_cst);
  return member;
}

template <class HasEnded>
std::vector<node_budget_member> members_in(const node::account& shared, const HasEnded& has_ended) {
  std::vector<node_budget_member> all;
  const auto now = node::now_ns();
  for (const node::slot& one : shared.members) {
    if (one.owner.load(std::memory_order_seq_cst) == 0) continue;
    all.push_back(describe_member(one, now));
    all.back().ended = has_ended(one);
  }
  return all;
}

result<std::uint64_t> units_of(std::size_t max_bytes) noexcept {
  if (max_bytes / node::unit == 0 || max_bytes / node::unit > node::total::most_units)
    return fail(errc::invalid_argument, "a node budget's maximum is at least 4096 bytes, and below 4 PiB");
  return max_bytes / node::unit;
}

// Returns the object of this process, unless the account's name has been removed.
std::optional<result<std::shared_ptr<node_budget>>> open_here(std::string_view name, std::uint64_t max_units) {
  auto known = node::forks::watch().find(name);
  if (known == nullptr || !known->inside().still_named()) return std::nullopt;
  if (max_units != 0 && known->max_bytes() != max_units * node::unit)
    return fail(errc::invalid_argument, "the account has members, and another maximum");
  return known;
}

}  // namespace

node_budget::node_budget(std::unique_ptr<node::membership> inside, bool pins) noexcept
    : inside_(std::move(inside)), pins_(pins) {
  if (pins_) static_cast<void>(limits());
}

node_budget::~node_budget() {
  const detail::no_cancellation guard;
  inside_.reset();
}

result<std::shared_ptr<node_budget>> node_budget::open(std::string_view name, node_budget_options options) {
  const detail::no_cancellation guard;
  std::uint64_t max_units = 0;
  if (options.max_bytes != 0) {
    const auto units = units_of(options.max_bytes);
    if (!units) return tl::unexpected(units.error());
    max_units = *units;
  }
  if (options.shared)
    if (auto known = open_here(name, max_units)) return *known;
  if (options.member.empty()) options.member = ::program_invocation_short_name;
  auto joined = node::membership::join(std::string(name), max_units, options.member);
  if (!joined) return tl::unexpected(joined.error());
  std::shared_ptr<node_budget> made(new node_budget(std::move(*joined), options.pins));
  if (!options.shared) return made;
  std::shared_ptr<node_budget> faster;  // ends after the watch, as `made` does: both may leave the account
  node::forks::watch watch;
  faster = watch.find(name);
  if (faster != nullptr && faster->inside().still_named()) return faster;
  watch.share(*made->inside_, made);
  return made;
}

result<std::shared_ptr<node_budget>> node_budget::open_text(std::string_view text) {
  const auto colon = text.find(':');
  node_budget_options options;
  if (colon != std::string_view::npos) {
    const auto max_bytes = parse_size(text.substr(colon + 1));
    if (!max_bytes || *max_bytes == 0) return fail(errc::invalid_argument, "expected a name, or name:maximum");
    options.max_bytes = *max_bytes;
  }
  return open(text.substr(0, colon), options);
}

result<node_budget_state> node_budget::inspect(std::string_view name) {
  const detail::no_cancellation guard;
  const auto path = node::path_of(name);
  if (!path) return tl::unexpected(path.error());
  const auto file = node::shared_file::open(*path, 0);
  if (!file) return tl::unexpected(file.error());
  const node::account& shared = **file;
  const auto here = node::process_id::here().namespace_inode;
  return node_budget_state{
      shared.max_units.load(std::memory_order_seq_cst) * node::unit,
      node::total::of(shared.taken.load(std::memory_order_seq_cst)).units * node::unit,
      members_in(shared, [&](const node::slot& one) { return node::has_ended(*file, one, here); })};
}

result<std::string> node_budget::file_of(std::string_view name) { return node::path_of(name); }

result<void> node_budget::remove(std::string_view name) noexcept try {
  const auto path = node::path_of(name);
  if (!path) return tl::unexpected(path.error());
  if (::unlink(path->c_str()) == 0) return {};
  return fail_errno(errno == EACCES || errno == EPERM ? errc::not_permitted : errc::driver_error, errno,
                    "cannot remove the account's file");
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for the account's name");
}

bool node_budget::take(std::size_t bytes) noexcept {
  const detail::no_cancellation guard;
  if (!inside_->take(bytes)) {
    static_cast<void>(inside_->reclaim());
    if (!inside_->take(bytes)) return false;
  }
  taken_.fetch_add(bytes, std::memory_order_seq_cst);
  return true;
}

// Gives back at most what `take` has taken: other room of the membership belongs to caches.
void node_budget::give(std::size_t bytes) noexcept {
  auto taken = taken_.load(std::memory_order_seq_cst);
  while (!taken_.compare_exchange_weak(taken, taken - std::min(bytes, taken), std::memory_order_seq_cst)) {
  }
  inside_->give(std::min(bytes, taken));
}
void node_budget::trim() noexcept { inside_->trim(); }

result<void> node_budget::set_max_bytes(std::size_t bytes) noexcept {
  const auto units = units_of(bytes);
  if (!units) return tl::unexpected(units.error());
  return inside_->set_max(*units);
}

const std::string& node_budget::name() const noexcept { return inside_->name(); }
std::size_t node_budget::max_bytes() const noexcept { return inside_->max_bytes(); }
std::size_t node_budget::used_bytes() const noexcept { return inside_->used_bytes(); }
std::size_t node_budget::bytes_here() const noexcept { return inside_->bytes_here(); }

std::vector<node_budget_member> node_budget::members() const {
  const detail::no_cancellation guard;
  return members_in(inside_->shared(), [&](const node::slot& one) { return inside_->has_ended(one); });
}

// The next registration may pin memory that the cgroup already uses, so the limit is memory.max as a whole; its free
// room is only reported.
node_budget_limits node_budget::limits() const noexcept {
  const detail::no_cancellation guard;
  const auto memlock = node::memlock_limit();
  const auto cgroup = node::cgroup_limit();
  node_budget_limits all{max_bytes(), used_bytes(), memlock.max, memlock.used, cgroup.max, cgroup.used, 0, {}, 0};
  all.process_max = std::min({all.account_max, memlock.max, cgroup.least_max});
  if (pins_) inside_->limit_process(std::min(memlock.max, cgroup.least_max));
  const auto room = [](std::size_t max, std::size_t used) {
    return max == unlimited ? unlimited : max - std::min(used, max);
  };
  all.room = room(all.account_max, all.account_used);
  if (const auto less = room(memlock.max, memlock.used); less < all.room) {
    all.room = less;
    all.binds = node_budget_bound::memlock;
  }
  if (const auto less = room(cgroup.max, cgroup.used); less < all.room) {
    all.room = less;
    all.binds = node_budget_bound::cgroup;
  }
  return all;
}

}  // namespace pinfold
