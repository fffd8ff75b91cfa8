// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/core_file.hpp"
#include "inspection/memory.hpp"
#include "inspection/process.hpp"
#include "inspection/tables.hpp"
#include "inspection/walk.hpp"
#include "os/file.hpp"
#include "os/no_cancellation.hpp"
#include "os/process_stat.hpp"

#include <pinfold/process_dump.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold {

namespace {

using inspection::seen_cache;
using inspection::seen_entry;

constexpr std::int64_t second = 1'000'000'000;

// Returns the time in the unit of the library's coarse stamps, which wrap around.
std::uint32_t ticks_now(std::uint32_t ticks_per_second) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint32_t>(now.tv_sec * ticks_per_second + now.tv_nsec * ticks_per_second / second);
}

/// Collects the caches of one copy of the library.
class collector final : public inspection::visitor {
 public:
  collector(process_dump& to, const inspection::threads& threads, std::string release)
      : to_(to.caches), first_(to_.size()), core_(to.core), threads_(threads), release_(std::move(release)) {}

  void cache(const seen_cache& found) noexcept override {
    keep([&] { to_.push_back(without_entries(found)); });
    ticks_per_second_ = found.ticks_per_second;
    if (!core_) now_ = ticks_now(ticks_per_second_);
  }
  void entry(const seen_entry& found) noexcept override {
    keep([&] { to_.back().entries.push_back(as_dumped(found)); });
  }
  void revoked(std::uintptr_t record) noexcept override {
    keep([&] { to_.back().revoked.push_back(record); });
  }
  void end(bool complete) noexcept override {
    if (!failed_) to_.back().complete = complete;
  }
  /// Ends the copy. Rethrows what the collection threw.
  void finish() {
    if (failed_) std::rethrow_exception(failed_);
    auto newest = std::chrono::nanoseconds::max();
    const auto for_each_age = [&](auto&& call) {
      for (auto number = first_; number < to_.size(); ++number)
        for (auto& one : to_[number].entries)
          if (one.state != entry_state::opening) call(one.age);
    };
    for_each_age([&](const auto& age) { newest = std::min(newest, age); });
    for_each_age([&](auto& age) { age = core_ ? age - newest : std::max(age, age.zero()); });
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
  [[nodiscard]] dumped_entry as_dumped(const seen_entry& found);
  // May be negative: a stamp may be newer than now.
  [[nodiscard]] std::chrono::nanoseconds since(std::uint32_t then) {
    if (!now_) now_ = then;  // in a core file
    return std::chrono::nanoseconds(static_cast<std::int32_t>(*now_ - then) * (second / ticks_per_second_));
  }

  std::vector<dumped_cache>& to_;
  const std::size_t first_;
  const bool core_;
  const inspection::threads& threads_;
  const std::string release_;
  std::uint32_t ticks_per_second_ = 1;
  std::optional<std::uint32_t> now_;  ///< in ticks
  std::exception_ptr failed_;
};

dumped_cache collector::without_entries(const seen_cache& found) const {
  const auto& about = found.about;
  dumped_cache made;
  made.name = about.name;
  made.registrar = about.registrar;
  made.release = release_;
  made.engine = reinterpret_cast<std::uintptr_t>(about.engine);
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

dumped_entry collector::as_dumped(const seen_entry& found) {
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
  made.age = opening ? std::chrono::nanoseconds{0} : since(found.opened_at);
  made.owner = found.owner;
  made.owner_lives = threads_.ids.contains(found.owner);
  made.bypass = found.bypass;
  made.persistent = found.persistent;
  made.unshared = found.unshared;
  made.doomed = found.doomed;
  made.in_driver = found.in_driver;
  made.hittable = found.hittable;
  made.stale = found.stale;
  made.record = found.record;
  made.entry = found.entry;
  return made;
}

/// Returns whether the process has ended or is ending. Once an ending process has given up its memory, the kernel
/// returns EACCES too, because no memory says which user may read it. The end may take long: each thread needs a CPU
/// for it.
bool has_ended(int process) {
  constexpr std::chrono::milliseconds end_takes{100};
  constexpr std::chrono::milliseconds end_takes_at_most{10'000};
  const os::file there(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!there) return errno == ESRCH;
  const auto seen = os::read_process_stat(inspection::thread_that_runs(process));
  return os::readable_within(there, seen && seen->main_thread_ends() ? end_takes_at_most : end_takes);
}

/// Returns the error for an `errno` of reading the process's memory; `message` is for codes other than the usual ones.
error refusal(int process, int code, const char* message = "cannot read /proc/<pid>/mem") {
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

/// Adds the caches in `memory`, where files may begin at `begins`.
void add_copies(process_dump& to, inspection::memory& memory, const std::vector<std::uintptr_t>& begins,
                const inspection::threads& threads) {
  const auto tables = inspection::find_tables(memory, begins);
  const auto walk = std::make_unique<inspection::walk>();
  for (const auto table : tables) {
    collector into(to, threads, release_of(memory, table));
    const auto outcome = walk->over(memory, table, into);
    into.finish();
    if (outcome != inspection::walk::outcome::done) ++to.unreadable;
  }
  to.copies = tables.size();
}

}  // namespace

result<process_dump> dump_process(int process, int memory) {
  const detail::no_cancellation guard;
  if (process <= 0) return tl::unexpected(refusal(process, ESRCH));
  const int thread = inspection::thread_that_runs(process);
  auto from =
      memory < 0 ? inspection::memory(thread) : inspection::memory(process, ::fcntl(memory, F_DUPFD_CLOEXEC, 0));
  if (from.failure() != 0) return tl::unexpected(refusal(process, from.failure()));
  errno = 0;
  std::ifstream maps("/proc/" + std::to_string(thread) + "/maps");
  if (!maps) return tl::unexpected(refusal(process, errno != 0 ? errno : EIO, "cannot read /proc/<pid>/maps"));
  process_dump found;
  found.process = process;
  found.command = inspection::command_of(process);
  const auto before = inspection::threads_of(process);
  if (before.ids.empty()) return tl::unexpected(refusal(process, ESRCH));
  add_copies(found, from, inspection::begins_of_files(maps), before);
  found.stopped = before.all_stopped && inspection::threads_of(process).all_stopped;
  return found;
}

// O_NONBLOCK, because the open of a FIFO would wait for a writer.
result<process_dump> dump_core_file(const std::string& path) {
  const detail::no_cancellation guard;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  inspection::memory memory(0, file);
  if (const int native = memory.failure(); native != 0)
    return fail_errno(os::code_for(native, errc::invalid_argument), native, "cannot open the core file");
  struct stat seen{};
  if (::fstat(file, &seen) != 0 || !S_ISREG(seen.st_mode)) return fail(errc::invalid_argument, "not a regular file");
  const auto core = inspection::read_core_file(memory);
  if (!core) return fail(errc::invalid_argument, "it is no core file of a process with words of 64 bits");
  process_dump found;
  found.core = found.stopped = true;
  found.process = core->process;
  found.command = core->command;
  add_copies(found, memory, core->begins, core->running);
  return found;
}

}  // namespace pinfold
