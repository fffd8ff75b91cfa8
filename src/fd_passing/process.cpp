// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/process.hpp"

#include "os/process_stat.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fcntl.h>
#include <string_view>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::fd_passing {

namespace {

constexpr const char* ended_text = "the exporting process has ended";

result<std::uint64_t> random_id() noexcept {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id && errno != EINTR) {
      return os::fail_system("cannot get a random number for the exporter");
    }
  }
  return id;
}

}  // namespace

result<std::uint64_t> start_time_of(pid_t process) noexcept {
  const auto seen = os::read_process_stat(process);
  if (seen) return seen->started;
  const int native = seen.error().native;
  if (native == ENOENT || native == ESRCH) return fail_errno(errc::peer_gone, native, ended_text);
  return tl::unexpected(seen.error());
}

bool main_thread_ends(pid_t process) noexcept {
  const auto seen = os::read_process_stat(process);
  return seen && seen->main_thread_ends();
}

// The information on a pidfd has one line of numbers, that of each namespace from this one to the process's own.
result<pid_t> own_number_of(pid_t process) noexcept {
  constexpr std::string_view label = "\nNSpid:";
  const file opened(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  const file about(::open(os::proc_path("/proc/thread-self/fdinfo/", opened.number()).text(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t got = about ? ::read(about.number(), text.data(), text.size()) : 0;
  std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const auto begin = line.find(label);
  if (begin == std::string_view::npos) return fail(errc::driver_error, "the system does not show a process's numbers");
  line.remove_prefix(begin + label.size());
  line = line.substr(0, line.find('\n'));
  line.remove_prefix(line.rfind('\t') + 1);
  pid_t number = 0;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

result<exporter_id> new_origin() noexcept {
  const auto id = random_id();
  if (!id) return tl::unexpected(id.error());
  const auto started = start_time_of(::getpid());
  if (!started) return fail_errno(errc::unsupported, started.error().native, "/proc does not show this process");
  return exporter_id{*id, *started, ::getpid()};
}

result<file> open_process(const exporter_id& of) noexcept {
  file process(static_cast<int>(::syscall(SYS_pidfd_open, of.pid, 0)));
  if (!process) {
    const int native = errno;
    // The number may be that of a thread: EINVAL, and ENOENT since Linux 6.15.
    const bool none = native == ESRCH || native == EINVAL || native == ENOENT;
    return fail_errno(none ? errc::peer_gone : os::code_for(native), native,
                      none ? ended_text : "cannot open the exporting process (pidfd_open)");
  }
  const auto started = start_time_of(of.pid);
  // Without an entry in /proc the process has ended, or /proc is not mounted or hides the process.
  if (!started && started.error() == errc::peer_gone && !has_ended(process)) {
    return fail_errno(errc::unsupported, started.error().native, "/proc does not show the exporting process");
  }
  if (!started) return tl::unexpected(started.error());
  if (*started != of.start_time) {
    return fail(errc::peer_gone, "the exporting process has ended, and another process reused its ID");
  }
  return process;
}

// Reads the link first. A file of a detached file system may have that name, too.
bool is_another_file(pid_t process, int descriptor, const file_identity& wanted) noexcept {
  constexpr std::string_view memory_file = "/memfd:";
  if (wanted.inode == 0) return false;
  const auto path = os::proc_path(process, "/fd/", descriptor);
  std::array<char, memory_file.size()> name{};
  const auto bytes = ::readlink(path.text(), name.data(), name.size());
  if (bytes < 0) return false;
  if (std::string_view(name.data(), static_cast<std::size_t>(bytes)) != memory_file) return true;
  const auto seen = os::inode_at(AT_FDCWD, path.text());
  return seen.number != 0 && !(seen == os::inode{wanted.device, wanted.inode});
}

result<file> duplicate_from(const file& process, int descriptor) noexcept {
  file fetched(static_cast<int>(::syscall(SYS_pidfd_getfd, process.number(), descriptor, 0)));
  if (fetched) return fetched;
  const int native = errno;
  // The error for a process that has just ended depends on the kernel's version. The main thread ends shortly before
  // the process, or long before it (pthread_exit(3)).
  const auto wait = native == ESRCH ? death_takes : std::chrono::milliseconds{0};
  if (os::readable_within(process, wait)) return fail_errno(errc::peer_gone, native, ended_text);
  if (native == ESRCH) {
    return fail_errno(errc::unsupported, native,
                      "the exporter's main thread has ended: let the exporter serve, and use the scm transport");
  }
  if (native == EBADF) return fail_errno(errc::stale_handle, native, "the exporter has freed this buffer");
  if (native == EPERM) {
    return fail_errno(errc::not_permitted, native,
                      "ptrace rules forbid fetching the descriptor: let the exporter serve, and use the scm transport");
  }
  return fail_errno(os::code_for(native), native, "cannot fetch the exporter's descriptor (pidfd_getfd)");
}

}  // namespace pinfold::fd_passing
