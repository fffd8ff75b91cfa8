// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/memfd_link.hpp"

#include "registrars/memfd_client.hpp"
#include "registrars/memfd_process.hpp"
#include "registrars/memfd_wire.hpp"

#include <algorithm>
#include <new>

namespace pinfold::memfd {

namespace {

/// A server with too many connections may cut off a new one before it has answered.
constexpr int fresh_attempts = 3;

/// A process that dies closes its sockets shortly before it counts as ended.
constexpr std::chrono::milliseconds death_takes{100};

bool is_one_of(const error& failure, errc first, errc second) noexcept { return failure == first || failure == second; }

/// Whether the exporter's socket is worth a try where its process could not be opened.
bool socket_may_do(memfd_via via, const error& failure) noexcept {
  if (via == memfd_via::pidfd || failure == errc::out_of_resources) return false;
  return via == memfd_via::scm || failure != errc::peer_gone;
}

}  // namespace

result<file> link::fetch(memfd_via via, const memfd_handle& handle) noexcept {
  if (via == memfd_via::scm) return fetch_by_socket(handle);
  auto direct = fetch_by_pidfd(handle);
  if (direct || via == memfd_via::pidfd) return direct;
  if (!is_one_of(direct.error(), errc::not_permitted, errc::unsupported)) return direct;
  auto served = fetch_by_socket(handle);
  // Where nobody serves, what to do about the first way is the better advice.
  return !served && served.error() == errc::unsupported ? std::move(direct) : std::move(served);
}

result<file> link::fetch_by_pidfd(const memfd_handle& handle) noexcept {
  if (!process_) return tl::unexpected(reason_);
  return duplicate_from(process_, handle);
}

result<file> link::fetch_by_socket(const memfd_handle& handle) noexcept {
  while (file idle = take_idle()) {
    auto got = ask_and_keep(std::move(idle), handle);
    if (got || got.error() != errc::closed) return got;
  }
  error last{};
  for (int attempt = 0; attempt < fresh_attempts; ++attempt) {
    auto fresh = connect(handle);
    auto got = fresh ? ask_and_keep(std::move(*fresh), handle) : result<file>(tl::unexpected(fresh.error()));
    if (got || got.error() != errc::closed) return got;
    last = got.error();
    if (!fresh) break;
  }
  return tl::unexpected(nobody_answers(last));
}

/// A forked child keeps its dead parent's socket alive, but nobody accepts there. Where the process could not be
/// opened, that is told from an exporter in another PID namespace by the number that the socket has for it.
result<file> link::connect(const memfd_handle& handle) const noexcept {
  auto fresh = connect_to(handle.exporter);
  if (!fresh || process_ || reason_ != errc::peer_gone) return fresh;
  const auto exporter = other_end(*fresh);
  if (exporter && exporter->pid == handle.pid) return tl::unexpected(reason_);
  return fresh;
}

result<file> link::ask_and_keep(file socket, const memfd_handle& handle) noexcept {
  auto got = ask(socket, process_, handle);
  if (got || got.error() == errc::stale_handle) keep(std::move(socket));
  return got;
}

error link::nobody_answers(const error& seen) const noexcept {
  if (!process_ || readable_within(process_, death_takes)) {
    return {errc::peer_gone, seen.kind, seen.native, "the exporting process has ended"};
  }
  return {errc::unsupported, seen.kind, seen.native, "the exporter does not serve its buffers over a socket"};
}

file link::take_idle() noexcept {
  const std::scoped_lock hold(mutex_);
  return idle_count_ == 0 ? file() : std::move(idle_[--idle_count_]);
}

void link::keep(file socket) noexcept {
  const std::scoped_lock hold(mutex_);
  if (idle_count_ < most_idle) idle_[idle_count_++] = std::move(socket);
}

result<std::shared_ptr<link>> link_table::find_or_make(memfd_via via, const memfd_handle& handle) noexcept try {
  if (auto known = find(key_of(handle))) return known;
  auto process = open_process(handle);
  if (!process && !socket_may_do(via, process.error())) return tl::unexpected(process.error());
  slots made;
  auto to =
      process ? std::make_shared<link>(std::move(*process), error{}) : std::make_shared<link>(file(), process.error());
  made.emplace(key_of(handle), slot{std::move(to), 0});
  return add(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

std::shared_ptr<link> link_table::find(const key& wanted) noexcept {
  slots inherited;
  const std::scoped_lock hold(mutex_);
  if (process_ != ::getpid()) {  // a forked child would read its parent's answers, and leave its own
    inherited.swap(slots_);
    process_ = ::getpid();
  }
  const auto found = slots_.find(wanted);
  if (found == slots_.end()) return nullptr;
  found->second.last_use = ++uses_;
  return found->second.to;
}

/// Another thread may have been quicker; then its link is the one.
std::shared_ptr<link> link_table::add(slots made) noexcept {
  const key wanted = made.begin()->first;
  slots::node_type removed;
  const std::scoped_lock hold(mutex_);
  if (slots_.size() >= most) {
    const auto use = [](const auto& one) { return one.second.last_use; };
    removed = slots_.extract(std::ranges::min_element(slots_, {}, use));
  }
  slots_.merge(made);
  slot& there = slots_.find(wanted)->second;
  there.last_use = ++uses_;
  return there.to;
}

void link_table::forget(const memfd_handle& handle) noexcept {
  slots::node_type removed;
  const std::scoped_lock hold(mutex_);
  removed = slots_.extract(key_of(handle));
}

bool link_table::forget_all() noexcept {
  slots removed;
  const std::scoped_lock hold(mutex_);
  removed.swap(slots_);
  return !removed.empty();
}

}  // namespace pinfold::memfd
