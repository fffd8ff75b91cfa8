// SPDX-License-Identifier: BSD-3-Clause
#include "observation/page_file.hpp"

#include "observation/clock.hpp"
#include "observation/page_name.hpp"
#include "observation/page_source.hpp"
#include "observation/process_identity.hpp"
#include "os/check.hpp"
#include "os/no_fork.hpp"
#include "os/own_user.hpp"
#include "os/size_limit.hpp"

#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::observation {

namespace {

constexpr mode_t only_user = S_IRUSR | S_IWUSR;
constexpr std::uint64_t kept_for = std::uint64_t{3600} * 1'000'000'000;  // after the process ended
constexpr std::size_t most_kept = 64;                                    // pages of ended processes

// Returns whether the folder is this user's: the kernel may show another user under this user's number.
bool is_own_folder(const std::string& path, uid_t owner) noexcept {
  if (os::match_user(owner) != os::user_match::ambiguous) return os::match_user(owner) == os::user_match::own;
  const os::file opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat seen{};
  return opened && ::fstat(opened.number(), &seen) == 0 && os::is_own_file(opened.number(), seen);
}

result<void> make_directory(const std::string& path) noexcept {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return os::fail_system("cannot make the folder of statistics pages");
  struct stat seen{};
  if (::lstat(path.c_str(), &seen) != 0) return os::fail_system("cannot look at the folder of statistics pages");
  if (!S_ISDIR(seen.st_mode))
    return fail_errno(errc::not_permitted, ENOTDIR, "the path of statistics pages is no folder, or a link");
  if (!is_own_folder(path, seen.st_uid) || (seen.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail_errno(errc::not_permitted, EPERM,
                      "the folder of statistics pages belongs to another user, or others may write to it");
  return {};
}

// Takes the lock of an open page, and returns whether the page still has that name. If so, it keeps the name until the
// file is closed, because a page is removed and replaced only with its lock.
bool lock_as(const std::string& path, const os::file& opened) noexcept {
  struct stat named{};
  struct stat own{};
  return ::flock(opened.number(), LOCK_EX | LOCK_NB) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         ::fstat(opened.number(), &own) == 0 && named.st_dev == own.st_dev && named.st_ino == own.st_ino;
}

// Returns when a process that ended published its page last; 0 for a time in the future, as after the machine started
// again. Nothing for a page of a process that may run, and for a file that is no page.
std::optional<std::uint64_t> last_published(const result<page_source>& opened) noexcept {
  const auto header = opened ? opened->header() : tl::unexpected(opened.error());
  if (!header || opened->life_of_process(*header) != process_life::ended) return std::nullopt;
  return header->published_at <= now_ns() ? header->published_at : 0;
}

// The page may have been replaced, or removed by another process, since this process looked at it.
void remove_if_ended(const std::string& path) noexcept {
  const auto opened = page_source::open(path, true);  // some file systems lock no file that is open for reading
  if (last_published(opened) && lock_as(path, opened->file())) static_cast<void>(::unlink(path.c_str()));
}

// Looks at so many pages at most, from any of them on: the others are for the processes that come.
void remove_old(const std::string& directory) {
  constexpr std::size_t most_looked_at = 256;
  const auto all = list_pages(directory);
  if (!all || all->empty()) return;
  const auto first = now_ns();
  std::vector<std::pair<std::uint64_t, std::string>> ended;
  for (std::size_t i = 0; i < std::min(all->size(), most_looked_at); ++i) {
    const auto& path = (*all)[(first + i) % all->size()];
    if (const auto published = last_published(page_source::open(path, true))) ended.emplace_back(*published, path);
  }
  std::sort(ended.begin(), ended.end(), std::greater<>{});
  for (std::size_t i = 0; i < ended.size(); ++i) {
    const auto& [published, path] = ended[i];
    if (i >= most_kept || (published != 0 && now_ns() - published >= kept_for)) remove_if_ended(path);
  }
}

// Removes the files of processes that were killed while they made their page.
void remove_unfinished(const std::string& directory) {
  std::error_code failed;  // the files then stay
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end; at.increment(failed)) {
    struct stat seen{};
    const auto& path = at->path();
    if (!is_unfinished(path.filename().native()) || ::lstat(path.c_str(), &seen) != 0) continue;
    const auto changed = static_cast<std::uint64_t>(seen.st_mtim.tv_sec) * 1'000'000'000;
    if (now_ns(CLOCK_REALTIME) > changed + kept_for) static_cast<void>(::unlink(path.c_str()));
  }
}

// Returns whether another copy of the library in this process has the file; that copy may have spelt the folder
// differently. Otherwise the file is from before the process executed this program. True where that cannot be known.
bool is_mapped_here(const std::string& path) {
  struct stat seen{};
  if (::lstat(path.c_str(), &seen) != 0) return false;
  const std::string name = path.substr(path.rfind('/'));
  std::ifstream maps("/proc/thread-self/maps");
  if (!maps) return true;  // no descriptor
  for (std::string line, skipped; std::getline(maps, line);) {
    if (!line.ends_with(name)) continue;
    ino_t inode = 0;
    std::istringstream(line) >> skipped >> skipped >> skipped >> skipped >> inode;
    if (inode == seen.st_ino) return true;
  }
  return maps.bad();
}

// Makes a file under a name that no other copy of the library uses, and sets that name. Sets `errno` on failure.
os::file make_file(const std::string& process, std::string& path) {
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  constexpr int most_left_over = 64;  // by earlier programs of this process
  static std::atomic<unsigned> last{0};
  const auto copy = std::to_string(reinterpret_cast<std::uintptr_t>(&last));
  for (int i = 0; i < most_left_over; ++i) {
    path = process;
    path.append(".").append(copy).append("-");
    path.append(std::to_string(last.fetch_add(1, std::memory_order_relaxed))).append(unfinished);
    const int made = ::open(path.c_str(), flags, only_user);
    if (made >= 0 || errno != EEXIST) return os::file(made);
  }
  return {};
}

// Renames a file, unless the new name is taken. Returns 0 or an `errno` value.
int rename_to_free(const std::string& from, const std::string& to) noexcept {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(from.c_str(), to.c_str()) != 0) return errno;  // the file system does not support the flag
  static_cast<void>(::unlink(from.c_str()));
  return 0;
}

// Removes a page left by an earlier program of this process. Returns false if the page belongs to another copy of the
// library, which may have made it meanwhile.
bool remove_left_over(const std::string& path, const std::string& aside) {
  const os::file found(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY));
  if (!found) return errno == ENOENT;
  if (!lock_as(path, found) || is_mapped_here(path)) return false;
  if (::rename(path.c_str(), aside.c_str()) != 0) return errno == ENOENT;
  if (is_mapped_here(aside)) return static_cast<void>(rename_to_free(aside, path)), false;
  return ::unlink(aside.c_str()) == 0;
}

// Returns whether the lock outlives the descriptor. It does where the mapping has the same open file; on overlayfs the
// mapping has another one.
bool is_locked(const std::string& path) noexcept {
  const os::file again(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return again && ::flock(again.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

result<std::byte*> map(const os::file& fresh) noexcept {
  void* const at = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fresh.number(), 0);
  if (at == MAP_FAILED) return os::fail_system("cannot map the statistics page");
  return static_cast<std::byte*>(at);
}

result<void> allocate(const os::file& in, std::size_t from, std::size_t bytes) noexcept {
  int native = EINTR;
  while (native == EINTR)
    native = os::within_size_limit(
        [&] { return ::posix_fallocate(in.number(), static_cast<off_t>(from), static_cast<off_t>(bytes)); });
  if (native != 0) return fail_errno(os::code_for(native), native, "no memory for the statistics page");
  return {};
}

}  // namespace

result<void> fill(const std::string& path, std::size_t from, std::size_t bytes) noexcept {
  const os::file found(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!found) return os::fail_system("cannot open the statistics page");
  return allocate(found, from, bytes);
}

void replace(std::byte* memory) noexcept {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  [[maybe_unused]] const void* const replaced = ::mmap(memory, page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  PINFOLD_ASSERT(replaced == memory, "the kernel replaces a page at its place");
}

namespace {

// No child inherits the descriptor: it would keep the lock.
result<void> make_and_map(mapped_file& made) {
  const os::no_fork guard;
  const os::file fresh = make_file(made.process, made.path);
  if (!fresh) return os::fail_system("cannot make the statistics page");
  static_cast<void>(::flock(fresh.number(), LOCK_EX | LOCK_NB));  // `is_locked` says whether this worked
  const bool sized = os::within_size_limit([&] { return ::ftruncate(fresh.number(), page_bytes); }) == 0;
  auto ready = sized ? allocate(fresh, 0, caches_from) : os::fail_system("cannot size the statistics page");
  const auto mapped = ready ? map(fresh) : tl::unexpected(ready.error());
  if (!mapped) {
    static_cast<void>(::unlink(made.path.c_str()));
    return tl::unexpected(mapped.error());
  }
  made.memory = *mapped;
  return {};
}

}  // namespace

result<mapped_file> make_page_file() {
  const std::string directory = page_directory();
  if (auto made = make_directory(directory); !made) return tl::unexpected(made.error());
  remove_old(directory);
  remove_unfinished(directory);
  const auto start = own_start_time();
  if (!start) return fail_errno(errc::unsupported, ENOENT, "statistics pages need /proc");
  mapped_file made;
  made.start_time = *start;
  made.process = directory + "/" + std::to_string(::getpid()) + "." + std::to_string(*start) + "." +
                 std::to_string(pid_namespace());
  if (auto mapped = make_and_map(made); !mapped) return tl::unexpected(mapped.error());
  made.locked = is_locked(made.path);
  return made;
}

result<void> show(mapped_file& made) {
  constexpr int most_copies = 64;
  const auto aside = std::string(made.path).append(unfinished);
  int native = EEXIST;
  for (int copy = 0; copy < most_copies && native == EEXIST; ++copy) {
    auto path = made.process + "." + std::to_string(copy);
    native = rename_to_free(made.path, path);
    if (native == EEXIST && remove_left_over(path, aside)) native = rename_to_free(made.path, path);
    if (native == 0) return made.path = std::move(path), result<void>{};
  }
  static_cast<void>(::unlink(made.path.c_str()));
  static_cast<void>(::munmap(made.memory, page_bytes));
  return fail_errno(os::code_for(native), native, "cannot name the statistics page");
}

}  // namespace pinfold::observation
