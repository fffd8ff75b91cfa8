// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/process.hpp"

#include <array>
#include <charconv>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::fd_passing {

namespace {

constexpr const char* ended_text = "the exporting process has ended";

/// A path in /proc, written without snprintf, which may lock and allocate.
class proc_path {
 public:
  static proc_path of_stat(pid_t process) noexcept { return proc_path(process, "/stat"); }
  static proc_path of_descriptor(pid_t process, int number) noexcept {
    proc_path made(process, "/fd/");
    made.append(number);
    return made;
  }
  [[nodiscard]] const char* text() const noexcept { return text_.data(); }

 private:
  proc_path(pid_t process, std::string_view file) noexcept {
    append("/proc/");
    append(process);
    append(file);
  }
  void append(std::string_view part) noexcept { bytes_ += part.copy(text_.data() + bytes_, part.size()); }
  void append(int number) noexcept {
    char* const from = text_.data() + bytes_;
    bytes_ += static_cast<std::size_t>(std::to_chars(from, text_.data() + text_.size(), number).ptr - from);
  }

  std::array<char, 40> text_{};  // zeros after the path
  std::size_t bytes_ = 0;
};

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

result<std::uint64_t> parse_start_time(std::string_view line) noexcept {
  constexpr auto bad = "cannot parse /proc/<pid>/stat";
  const std::size_t name_end = line.rfind(')');  // the name may hold blanks and parentheses itself
  if (name_end == std::string_view::npos) return fail(errc::driver_error, bad);
  line.remove_prefix(name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    const std::size_t blank = line.find(' ', 1);
    if (line.empty() || line.front() != ' ' || blank == std::string_view::npos) return fail(errc::driver_error, bad);
    if (field < 22) line.remove_prefix(blank);
  }
  std::uint64_t ticks = 0;
  const auto parsed = std::from_chars(line.data() + 1, line.data() + line.size(), ticks);
  if (parsed.ec != std::errc{} || *parsed.ptr != ' ') return fail(errc::driver_error, bad);
  return ticks;
}

result<std::uint64_t> start_time_of(pid_t process) noexcept {
  const file stat(::open(proc_path::of_stat(process).text(), O_RDONLY | O_CLOEXEC));
  if (!stat && errno == ENOENT) return fail_errno(errc::peer_gone, ENOENT, ended_text);
  if (!stat) return os::fail_system("cannot open /proc/<pid>/stat");
  std::array<char, 1024> line{};
  const ssize_t got = ::read(stat.number(), line.data(), line.size());
  if (got < 0 && errno == ESRCH) return fail_errno(errc::peer_gone, ESRCH, ended_text);
  if (got < 0) return os::fail_system("cannot read /proc/<pid>/stat");
  return parse_start_time({line.data(), static_cast<std::size_t>(got)});
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
    const bool none = native == ESRCH || native == EINVAL;
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

bool is_another_file(pid_t process, int descriptor, const file_identity& wanted) noexcept {
  struct stat seen{};
  if (wanted.inode == 0) return false;
  if (::stat(proc_path::of_descriptor(process, descriptor).text(), &seen) != 0) return false;
  return seen.st_dev != wanted.device || seen.st_ino != wanted.inode;
}

result<file> duplicate_from(const file& process, int descriptor) noexcept {
  file fetched(static_cast<int>(::syscall(SYS_pidfd_getfd, process.number(), descriptor, 0)));
  if (fetched) return fetched;
  const int native = errno;
  // The kernel's version decides which error a process gives that has just ended. The main thread ends shortly before
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
