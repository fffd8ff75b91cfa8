// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/listener.hpp"

#include "cli/failure.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <netinet/in.h>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

constexpr int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void refuse(const std::string& address) {
  const int problem = errno;
  throw failure(fmt::format("cannot listen at {}: {}", address, std::generic_category().message(problem)));
}

template <class Address>
const sockaddr* generic(const Address& one) noexcept {
  return reinterpret_cast<const sockaddr*>(&one);
}

std::optional<std::uint16_t> port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && stop == text.data() + text.size() ? std::optional(port) : std::nullopt;
}

// Whether no server has the socket any more.
bool is_left_over(const sockaddr_un& at) {
  struct stat found{};
  if (::lstat(at.sun_path, &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
  const int probe = ::socket(AF_UNIX, kind, 0);
  if (probe < 0) return false;
  const bool left = ::connect(probe, generic(at), sizeof at) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  return left;
}

// Locks the folder of a socket: of two servers that start at once, each would otherwise take the other's socket, which
// does not listen yet, for left over. A folder that another process keeps locked delays this one by a second.
class folder_lock {
 public:
  explicit folder_lock(const std::filesystem::path& socket)
      : folder_(::open((socket.parent_path() / ".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{1};
    while (folder_ >= 0 && ::flock(folder_, LOCK_EX | LOCK_NB) != 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  folder_lock(const folder_lock&) = delete;
  folder_lock& operator=(const folder_lock&) = delete;
  ~folder_lock() {
    if (folder_ >= 0) ::close(folder_);
  }

 private:
  int folder_;
};

template <class Address>
int bound_and_listening(const Address& at, const std::string& address) {
  const int made = ::socket(generic(at)->sa_family, kind, 0);
  if (made < 0) refuse(address);
  const int yes = 1;
  ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const int most_unread = 1 << 17;  // the kernel's memory for a client that does not read
  ::setsockopt(made, SOL_SOCKET, SO_SNDBUF, &most_unread, sizeof most_unread);
  if (::bind(made, generic(at), sizeof at) == 0 && ::listen(made, SOMAXCONN) == 0) return made;
  const int problem = errno;
  ::close(made);
  errno = problem;
  refuse(address);
}

}  // namespace

listener::listener(const std::string& address) {
  address.find('/') != std::string::npos ? listen_at_path(address) : listen_at_address(address);
}

listener::~listener() {
  struct stat there{};
  if (is_path() && ::lstat(path_.c_str(), &there) == 0 && there.st_dev == made_.st_dev && there.st_ino == made_.st_ino)
    ::unlink(path_.c_str());
  if (socket_ >= 0) ::close(socket_);
}

int listener::hand_over() noexcept { return std::exchange(socket_, -1); }

void listener::listen_at_path(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path)
    throw usage_failure(fmt::format("--listen {}: the path of a socket has at most 107 bytes", path));
  std::ranges::copy(path, static_cast<char*>(at.sun_path));
  const folder_lock locked(path);
  if (is_left_over(at)) ::unlink(path.c_str());
  constexpr mode_t not_for_others = S_IRWXG | S_IRWXO | S_IXUSR;
  const auto before = ::umask(not_for_others);  // the tool has one thread
  const auto with_mask_again = [&](int made) { return ::umask(before), made; };
  try {
    socket_ = with_mask_again(bound_and_listening(at, path));
  } catch (...) {
    ::umask(before);
    throw;
  }
  path_ = path;
  static_cast<void>(::lstat(path.c_str(), &made_));  // or the file is gone already
}

void listener::listen_at_address(const std::string& address) {
  const auto colon = address.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : port_of(std::string_view(address).substr(colon + 1));
  host_ = address.substr(0, colon);
  if (!port || (host_ != "127.0.0.1" && host_ != "[::1]"))
    throw usage_failure(fmt::format("--listen {}: expected a path with a /, 127.0.0.1:PORT or [::1]:PORT", address));
  if (host_ == "127.0.0.1") {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(*port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socket_ = bound_and_listening(at, address);
  } else {
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_port = htons(*port);
    at.sin6_addr = in6addr_loopback;
    socket_ = bound_and_listening(at, address);
  }
}

std::string listener::url() const {
  if (is_path()) return fmt::format("--unix-socket {} http://localhost/metrics", path_);
  sockaddr_in6 at{};  // the larger one; the port is at the same place in both
  socklen_t size = sizeof at;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size) != 0) refuse(host_);
  return fmt::format("http://{}:{}/metrics", host_, ntohs(at.sin6_port));
}

}  // namespace tool
