// SPDX-License-Identifier: BSD-3-Clause
#include "node_budget/shared_file.hpp"

#include "os/check.hpp"
#include "os/own_user.hpp"
#include "os/size_limit.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pinfold::node {

namespace {

constexpr const char* directory = "/dev/shm";
constexpr std::size_t longest_name = 63;
constexpr int most_unlocks = 100;
constexpr std::chrono::microseconds between_unlocks{100};

bool is_good(std::string_view name) noexcept {
  static constexpr std::string_view beside = "_-.";
  return !name.empty() && name.size() <= longest_name && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           beside.find(c) != std::string_view::npos;
  });
}

// Also allocates memory for the file: otherwise a write would raise SIGBUS on a full file system.
result<void> fill(const os::file& fresh, std::uint64_t max_units) noexcept {
  int native = EINTR;
  while (native == EINTR)
    native = os::within_size_limit([&] { return ::posix_fallocate(fresh.number(), 0, sizeof(account)); });
  if (native != 0) return fail_errno(os::code_for(native), native, "no memory for the account");
  void* const at = ::mmap(nullptr, sizeof(account), PROT_READ | PROT_WRITE, MAP_SHARED, fresh.number(), 0);
  if (at == MAP_FAILED) return os::fail_system("cannot map the account");
  auto* const made = static_cast<account*>(at);  // zeroed
  made->version = account_version;
  made->slot_bytes = sizeof(slot);
  made->slots = most_members;
  made->bytes_of_unit = unit;
  made->max_units.store(max_units, std::memory_order_seq_cst);
  made->magic = account_magic;
  ::munmap(at, sizeof(account));
  return {};
}

// Makes the file without a name and links it when it is complete, so that no process finds half an account. Returns the
// file, which another process may have removed since; none if another process was faster.
result<os::file> make(const std::string& path, std::uint64_t max_units) noexcept {
  os::file fresh(::open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!fresh) return os::fail_system("cannot make a file in /dev/shm");
  if (::fchmod(fresh.number(), S_IRUSR | S_IWUSR) != 0) return os::fail_system("cannot make a file in /dev/shm");
  if (auto filled = fill(fresh, max_units); !filled) return tl::unexpected(filled.error());
  std::array<char, 64> self{};
  std::snprintf(self.data(), self.size(), "/proc/thread-self/fd/%d", fresh.number());
  if (::linkat(AT_FDCWD, self.data(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) return fresh;
  if (errno == EEXIST) return os::file();
  return os::fail_system("cannot give the account's file its name");
}

result<void> check_file(const os::file& found) noexcept {
  struct stat seen{};
  if (::fstat(found.number(), &seen) != 0) return os::fail_system("cannot look at the account's file");
  if (!S_ISREG(seen.st_mode)) return fail(errc::invalid_handle, "the account's file is not a regular file");
  if (!os::is_own_file(found.number(), seen) || (seen.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fail(errc::invalid_handle, "the account's file belongs to another user, or others may use it");
  if (seen.st_size != sizeof(account)) return fail(errc::invalid_handle, "the account's file has the wrong size");
  return {};
}

result<void> check_account(const account& found) noexcept {
  if (found.magic != account_magic) return fail(errc::invalid_handle, "the file is not an account, or damaged");
  if (found.version != account_version) return fail(errc::invalid_handle, "the account is of another version");
  const auto max = found.max_units.load(std::memory_order_seq_cst);
  if (found.slot_bytes != sizeof(slot) || found.slots != most_members || found.bytes_of_unit != unit || max == 0 ||
      max > total::most_units)
    return fail(errc::invalid_handle, "the account is damaged");
  return {};
}

int open_existing(const std::string& path) noexcept {
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

// Maps a separate open file: a child of fork(2) inherits the mapping, which would keep the locks of its open file.
result<account*> map_apart(const os::file& locked) noexcept {
  std::array<char, 64> self{};
  std::snprintf(self.data(), self.size(), "/proc/thread-self/fd/%d", locked.number());
  const os::file again(::open(self.data(), O_RDWR | O_CLOEXEC));
  if (!again) return os::fail_system("cannot open the account's file in /proc");
  void* const at = ::mmap(nullptr, sizeof(account), PROT_READ | PROT_WRITE, MAP_SHARED, again.number(), 0);
  if (at == MAP_FAILED) return os::fail_system("cannot map the account");
  return static_cast<account*>(at);
}

}  // namespace

result<std::string> path_of(std::string_view name) {
  if (!is_good(name))
    return fail(errc::invalid_argument, "a node budget's name has 1 to 63 letters, digits, or the characters _ - .");
  return std::string(directory) + "/pinfold-" + std::to_string(::geteuid()) + "-" + std::string(name);
}

void shared_file::unmap::operator()(account* mapped) const noexcept { ::munmap(mapped, sizeof(account)); }

result<shared_file> shared_file::open(const std::string& path, std::uint64_t max_units) noexcept {
  constexpr int most_made = 100;  // other processes may make and remove it repeatedly
  shared_file found;
  found.file_ = os::file(open_existing(path));
  for (int i = 0; !found.file_ && errno == ENOENT && i < most_made; ++i) {
    if (max_units == 0)
      return fail_errno(errc::invalid_argument, ENOENT, "there is no such account; its first member gives the maximum");
    auto made = make(path, max_units);
    if (!made) return tl::unexpected(made.error());
    found.file_ = std::move(*made);
    if (!found.file_) found.file_ = os::file(open_existing(path));
  }
  if (!found.file_)
    return errno == ELOOP ? fail_errno(errc::invalid_handle, ELOOP, "the account's file is a link")
                          : os::fail_system("cannot open the account's file");
  if (auto good = check_file(found.file_); !good) return tl::unexpected(good.error());
  auto mapped = map_apart(found.file_);
  if (!mapped) return tl::unexpected(mapped.error());
  found.mapped_.reset(*mapped);
  if (auto good = check_account(*found); !good) return tl::unexpected(good.error());
  return found;
}

bool shared_file::is_at(const std::string& path) const noexcept {
  struct stat mine{};
  struct stat named{};
  return ::fstat(file_.number(), &mine) == 0 && ::lstat(path.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
         mine.st_ino == named.st_ino;
}

struct flock shared_file::lock_on(const void* one, short type) const noexcept {
  struct flock what{};
  what.l_type = type;
  what.l_whence = SEEK_SET;
  what.l_start = static_cast<const std::byte*>(one) - reinterpret_cast<const std::byte*>(mapped_.get());
  what.l_len = 1;
  PINFOLD_ASSERT(mapped_ != nullptr && what.l_start >= 0 && what.l_start < static_cast<::off_t>(sizeof(account)),
                 "a lock lies in the account");
  return what;
}

bool shared_file::is_locked(const void* one) const noexcept {
  auto what = lock_on(one, F_WRLCK);
  return !file_.still_there() || ::fcntl(file_.number(), F_OFD_GETLK, &what) != 0 || what.l_type != F_UNLCK;
}

bool shared_file::lock(const void* one, bool take) const noexcept {
  if (!file_.still_there()) return errno = EBADF, false;  // the program closed it: the number may be another file's
  auto what = lock_on(one, take ? F_WRLCK : F_UNLCK);
  // The kernel needs memory to unlock, too, and may have none (ENOLCK): a lock that stays blocks all other processes.
  for (int tries = take ? 1 : most_unlocks; ::fcntl(file_.number(), F_OFD_SETLK, &what) != 0;) {
    if (errno == EINTR) continue;
    if (--tries == 0) return false;
    std::this_thread::sleep_for(between_unlocks);
  }
  return true;
}

}  // namespace pinfold::node
