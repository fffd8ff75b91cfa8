// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/memory.hpp"
#include "inspection/process.hpp"
#include "inspection/tables.hpp"
#include "inspection/walk.hpp"
#include "os/file.hpp"
#include "os/no_cancellation.hpp"

#include <pinfold/process_dump.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>

#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold {

namespace {

using inspection::seen_cache;
using inspection::seen_entry;

// As the library's coarse stamps, which wrap.
std::chrono::nanoseconds since(std::uint32_t then, std::uint32_t ticks_per_second) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  constexpr std::int64_t second = 1'000'000'000;
  const auto ticks =
      static_cast<std::uint32_t>(now.tv_sec * ticks_per_second + now.tv_nsec * ticks_per_second / second);
  const auto passed = static_cast<std::int32_t>(ticks - then);  // a stamp may be newer
  return std::chrono::nanoseconds(std::max(passed, 0) * (second / ticks_per_second));
}

class collector final : public inspection::visitor {
 public:
  collector(std::vector<dumped_cache>& to, const inspection::threads& threads, std::string release)
      : to_(to), threads_(threads), release_(std::move(release)) {}

  void cache(const seen_cache& found) noexcept override {
    keep([&] { to_.push_back(without_entries(found)); });
    ticks_per_second_ = found.ticks_per_second;
  }
  void entry(const seen_entry& found) noexcept override {
    keep([&] { to_.back().entries.push_back(as_dumped(found)); });
  }
  void end(bool complete) noexcept override {
    if (!failed_) to_.back().complete = complete;
  }
  void throw_if_failed() const {
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  template <class F>
  void keep(F&& call) noexcept {
    if (failed_) return;
    try {
      call();
    } catch (...) {
      failed_ = std::current_exception();
    }
  }
  [[nodiscard]] dumped_cache without_entries(const seen_cache& found) const;
  [[nodiscard]] dumped_entry as_dumped(const seen_entry& found) const;

  std::vector<dumped_cache>& to_;
  const inspection::threads& threads_;
  const std::string release_;
  std::uint32_t ticks_per_second_ = 1;
  std::exception_ptr failed_;
};

dumped_cache collector::without_entries(const seen_cache& found) const {
  const auto& about = found.about;
  dumped_cache made;
  made.name = about.name;
  made.registrar = about.registrar;
  made.release = release_;
  made.imports = about.imports != 0;
  made.ended = found.ended;
  made.of_parent = found.of_parent;
  made.retain = about.retain != 0;
  made.strict = about.strict != 0;
  made.reaper = about.reaper != 0;
  made.full = static_cast<when_full>(about.full);
  made.closes = static_cast<close_policy>(about.closes);
  made.max_bytes = about.max_bytes;
  made.max_count = about.max_count;
  made.bytes_now = found.bytes;
  made.entries_now = found.count;
  made.shards = about.shard_count;
  made.locked_shards = found.locked_shards;
  found.for_each_counter(
      [&](std::string_view name, std::uint64_t value) { made.counters.emplace_back(std::string(name), value); });
  std::copy_n(found.closed.begin(), made.remembered.size(), made.remembered.begin());
  return made;
}

dumped_entry collector::as_dumped(const seen_entry& found) const {
  dumped_entry made;
  made.peer = {found.peer};
  made.covered = {found.begin, found.end};
  made.data = found.data;
  made.bytes = found.bytes;
  made.state = static_cast<entry_state>(found.state);
  made.access = static_cast<access_flags>(found.access);
  const bool opening = made.state == entry_state::opening;
  made.leases = static_cast<std::uint64_t>(std::max<std::int64_t>(0, found.pins + (opening ? 1 : 0)));
  made.hits = found.hits;
  made.age = opening ? std::chrono::nanoseconds{0} : since(found.opened_at, ticks_per_second_);
  made.owner = found.owner;
  made.owner_lives = threads_.ids.contains(found.owner);
  made.bypass = found.bypass;
  made.persistent = found.persistent;
  made.unshared = found.unshared;
  made.doomed = found.doomed;
  made.in_driver = found.in_driver;
  made.hittable = found.hittable;
  made.stale = found.stale;
  return made;
}

/// Whether the process has ended, or gave up its memory and ends just now: then the kernel answers EACCES too, as no
/// memory says which user may read it.
bool has_ended(int process) noexcept {
  constexpr std::chrono::milliseconds end_takes{100};
  const os::file there(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  return there ? os::readable_within(there, end_takes) : errno == ESRCH;
}

/// The error for an `errno` of reading the process's memory; `message` is that of another code than the usual ones.
error refusal(int process, int code, const char* message = "cannot read /proc/<pid>/mem") noexcept {
  if (code == EACCES && has_ended(process)) code = ESRCH;
  switch (code) {
    case EPERM:
    case EACCES:
      return {
          errc::not_permitted, native_kind::posix, code,
          "this process may not read the memory of that one: run as the same user or as root, or give it "
          "CAP_SYS_PTRACE; where kernel.yama.ptrace_scope is 1 or more, being the same user is not enough. Or start "
          "that process with PINFOLD_DUMP_SIGNAL, which needs no permission"};
    case ENOENT:
    case ESRCH: return {errc::peer_gone, native_kind::posix, ESRCH, "there is no such process, or it has ended"};
    default: return {errc::driver_error, native_kind::posix, code, message};
  }
}

std::string release_of(inspection::memory& in, std::uintptr_t table) {
  debugging::table there{};
  std::array<char, 16> text{};
  if (in.read(table, there))
    static_cast<void>(in.read(reinterpret_cast<std::uintptr_t>(there.release), text.data(), text.size() - 1));
  return text.data();
}

}  // namespace

result<process_dump> dump_process(int process) {
  const detail::no_cancellation guard;
  if (process <= 0) return tl::unexpected(refusal(process, ESRCH));
  inspection::memory memory(process);
  if (memory.failure() != 0) return tl::unexpected(refusal(process, memory.failure()));
  errno = 0;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  if (!maps) return tl::unexpected(refusal(process, errno != 0 ? errno : EIO, "cannot read /proc/<pid>/maps"));
  process_dump found;
  found.process = process;
  found.command = inspection::command_of(process);
  const auto before = inspection::threads_of(process);
  if (before.ids.empty()) return tl::unexpected(refusal(process, ESRCH));
  const auto tables = inspection::find_tables(memory, maps);
  const auto walk = std::make_unique<inspection::walk>();
  for (const auto table : tables) {
    collector into(found.caches, before, release_of(memory, table));
    const auto outcome = walk->over(memory, table, into);
    into.throw_if_failed();
    if (outcome != inspection::walk::outcome::done) ++found.unreadable;
  }
  found.copies = tables.size();
  found.stopped = before.all_stopped && inspection::threads_of(process).all_stopped;
  return found;
}

}  // namespace pinfold
