// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One call of libc that fails once, as where the system is short of something. Include it in one source of a program:
/// it defines the functions, and so replaces those of libc for the library that is linked into the program. Not where
/// a sanitizer replaces them.
#pragma once

#include "support/host/sanitized.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {

/// A function, and the values of `errno` that it plausibly fails with.
struct refusable {
  const char* name;
  std::array<int, 4> natives;  ///< filled up with 0
};

inline constexpr refusable refusable_calls[] = {
    {"socket", {EMFILE, ENFILE, ENOMEM, EPERM}},
    {"socketpair", {EMFILE, ENFILE, ENOMEM}},
    {"bind", {ENOMEM, EACCES, EADDRINUSE}},
    {"listen", {ENOMEM, EADDRINUSE}},
    {"accept4", {EMFILE, ENFILE, ENOBUFS, EINTR}},
    {"connect", {EAGAIN, EINTR, EACCES}},
    {"send", {EAGAIN, EINTR, ENOBUFS, ENOMEM}},
    {"recv", {EAGAIN, EINTR, ENOMEM}},
    {"sendmsg", {EINTR, ENOBUFS, ENOMEM, ETOOMANYREFS}},
    {"recvmsg", {EINTR, ENOMEM}},
    {"poll", {EINTR, ENOMEM, EINVAL}},
    {"setsockopt", {ENOMEM, EDOM}},
    {"getsockopt", {ENOBUFS, ENOMEM}},
    {"pthread_create", {EAGAIN, EPERM}},
    {"memfd_create", {EMFILE, ENFILE, ENOMEM}},
    {"ftruncate", {ENOSPC, EINTR, EFBIG}},
    {"posix_fallocate", {ENOSPC, EINTR}},
    {"fcntl", {EMFILE, ENOLCK, ENOMEM, EPERM}},
    {"mmap", {ENOMEM, EAGAIN, EPERM}},
    {"open", {EMFILE, ENFILE, ENOMEM, EACCES}},
    {"read", {EINTR, EIO, ENOMEM}},
    {"pidfd_open", {EMFILE, ENFILE, ENOMEM, ENOSYS}},
    {"pidfd_getfd", {EMFILE, ENFILE, EPERM, ENOSYS}},
    {"linkat", {ENOSPC, ENOMEM, EPERM}},
    {"fchmod", {EPERM}},
    {"unlink", {EPERM, EACCES}},
    {"stat", {ENOMEM, EACCES}},
    {"readlink", {ENOMEM, EACCES}},
    {"getrandom", {EAGAIN, ENOSYS}},
    {"operator new", {ENOMEM}},
};
inline constexpr std::size_t refusable_count = std::size(refusable_calls);

inline std::array<std::atomic<int>, refusable_count> calls_made{};
inline std::atomic<const char*> refused_name{nullptr};
inline std::atomic<int> refused_nth{0};
inline std::atomic<int> refused_last{0};
inline std::atomic<int> refused_native{0};
inline std::atomic<int> refusals{0};
inline thread_local constinit bool in_library = false;  ///< and in all threads that such a thread starts

/// Counts the calls of this thread, within its scope.
class library_calls {
 public:
  library_calls() noexcept { in_library = true; }
  library_calls(const library_calls&) = delete;
  library_calls& operator=(const library_calls&) = delete;
  ~library_calls() { in_library = false; }
};

/// Counts the call. Returns the error that it is to fail with, or 0.
inline int refusal_of(std::string_view name) noexcept {
  if (!in_library) return 0;
  for (std::size_t i = 0; i < refusable_count; ++i) {
    if (name != refusable_calls[i].name) continue;
    const int made = calls_made[i].fetch_add(1) + 1;
    const char* const refused = refused_name.load();
    if (refused != refusable_calls[i].name || made < refused_nth.load() || made > refused_last.load()) return 0;
    refusals.fetch_add(1);
    return refused_native.load();
  }
  return 0;
}

/// Makes the calls of that function fail from the nth from now on to the last. `which` is one of `refusable_calls`.
inline void refuse_from(const refusable& which, int nth, int last, int native) noexcept {
  for (auto& one : calls_made) one.store(0);
  refusals.store(0);
  refused_nth.store(nth);
  refused_last.store(last);
  refused_native.store(native);
  refused_name.store(which.name);
}
/// Makes the nth call of that function from now on fail once.
inline void refuse_one(const refusable& which, int nth, int native) noexcept { refuse_from(which, nth, nth, native); }
inline void refuse_none() noexcept { refused_name.store(nullptr); }

/// A variable of the environment in which every pthread_atfork of the program fails.
inline constexpr const char* refuses_fork_handlers = "PINFOLD_TEST_REFUSE_FORK_HANDLERS";

template <class F>
F* next_function(const char* name) noexcept {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

/// Fails, or makes the call with the definition that comes after the one here.
template <class R, class... Arguments>
R pass_on(const char* name, Arguments... arguments) noexcept(false) {
  if (const int native = refusal_of(name); native != 0) return errno = native, static_cast<R>(-1);
  return next_function<R(Arguments...)>(name)(arguments...);
}

}  // namespace pinfold::testing

#if !PINFOLD_SANITIZED
extern "C" {
int socket(int family, int type, int protocol) noexcept {
  return pinfold::testing::pass_on<int>("socket", family, type, protocol);
}
int socketpair(int family, int type, int protocol, int ends[2]) noexcept {
  return pinfold::testing::pass_on<int>("socketpair", family, type, protocol, ends);
}
int bind(int number, const sockaddr* name, socklen_t bytes) noexcept {
  return pinfold::testing::pass_on<int>("bind", number, name, bytes);
}
int listen(int number, int backlog) noexcept { return pinfold::testing::pass_on<int>("listen", number, backlog); }
int accept4(int number, sockaddr* name, socklen_t* bytes, int flags) {
  return pinfold::testing::pass_on<int>("accept4", number, name, bytes, flags);
}
int connect(int number, const sockaddr* name, socklen_t bytes) {
  return pinfold::testing::pass_on<int>("connect", number, name, bytes);
}
ssize_t send(int number, const void* from, std::size_t bytes, int flags) {
  return pinfold::testing::pass_on<ssize_t>("send", number, from, bytes, flags);
}
ssize_t recv(int number, void* into, std::size_t bytes, int flags) {
  return pinfold::testing::pass_on<ssize_t>("recv", number, into, bytes, flags);
}
ssize_t sendmsg(int number, const msghdr* message, int flags) {
  return pinfold::testing::pass_on<ssize_t>("sendmsg", number, message, flags);
}
ssize_t recvmsg(int number, msghdr* message, int flags) {
  return pinfold::testing::pass_on<ssize_t>("recvmsg", number, message, flags);
}
int poll(pollfd* watched, nfds_t count, int timeout) {
  return pinfold::testing::pass_on<int>("poll", watched, count, timeout);
}
int setsockopt(int number, int level, int name, const void* value, socklen_t bytes) noexcept {
  return pinfold::testing::pass_on<int>("setsockopt", number, level, name, value, bytes);
}
int getsockopt(int number, int level, int name, void* value, socklen_t* bytes) noexcept {
  return pinfold::testing::pass_on<int>("getsockopt", number, level, name, value, bytes);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return pinfold::testing::pass_on<int>("memfd_create", name, flags);
}
int ftruncate(int number, off_t bytes) noexcept { return pinfold::testing::pass_on<int>("ftruncate", number, bytes); }
int posix_fallocate(int number, off_t from, off_t bytes) {
  if (const int native = pinfold::testing::refusal_of("posix_fallocate"); native != 0) return native;
  return pinfold::testing::next_function<int(int, off_t, off_t)>("posix_fallocate")(number, from, bytes);
}
void* mmap(void* at, std::size_t bytes, int access, int flags, int number, off_t from) noexcept {
  if (const int native = pinfold::testing::refusal_of("mmap"); native != 0) return errno = native, MAP_FAILED;
  return pinfold::testing::next_function<void*(void*, std::size_t, int, int, int, off_t)>("mmap")(at, bytes, access,
                                                                                                  flags, number, from);
}
ssize_t read(int number, void* into, std::size_t bytes) {
  return pinfold::testing::pass_on<ssize_t>("read", number, into, bytes);
}
int linkat(int from, const char* old, int to, const char* made, int flags) noexcept {
  return pinfold::testing::pass_on<int>("linkat", from, old, to, made, flags);
}
int fchmod(int number, mode_t mode) noexcept { return pinfold::testing::pass_on<int>("fchmod", number, mode); }
int unlink(const char* path) noexcept { return pinfold::testing::pass_on<int>("unlink", path); }
int stat(const char* path, struct stat* seen) noexcept { return pinfold::testing::pass_on<int>("stat", path, seen); }
ssize_t readlink(const char* path, char* into, std::size_t bytes) noexcept {
  return pinfold::testing::pass_on<ssize_t>("readlink", path, into, bytes);
}
ssize_t getrandom(void* into, std::size_t bytes, unsigned flags) {
  return pinfold::testing::pass_on<ssize_t>("getrandom", into, bytes, flags);
}
// What pthread_atfork, which is linked statically, calls: the library does so when it is loaded.
int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* object) noexcept {
  if (::getenv(pinfold::testing::refuses_fork_handlers) != nullptr) return ENOMEM;
  return pinfold::testing::next_function<int(void (*)(), void (*)(), void (*)(), void*)>("__register_atfork")(
      before, in_parent, in_child, object);
}

int fcntl(int number, int command, ...) {
  va_list given;
  va_start(given, command);
  void* const argument = va_arg(given, void*);
  va_end(given);
  return pinfold::testing::pass_on<int>("fcntl", number, command, argument);
}
int open(const char* path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  const auto mode = va_arg(given, mode_t);
  va_end(given);
  return pinfold::testing::pass_on<int>("open", path, flags, mode);
}
long syscall(long number, ...) noexcept {
  va_list given;
  va_start(given, number);
  std::array<long, 6> with{};
  for (long& one : with) one = va_arg(given, long);
  va_end(given);
  const char* const name = number == SYS_pidfd_open ? "pidfd_open" : (number == SYS_pidfd_getfd ? "pidfd_getfd" : "");
  if (const int native = pinfold::testing::refusal_of(name); native != 0) return errno = native, -1;
  return pinfold::testing::next_function<long(long, long, long, long, long, long, long)>("syscall")(
      number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

int pthread_create(pthread_t* made, const pthread_attr_t* how, void* (*body)(void*), void* argument) noexcept {
  struct start {
    void* (*body)(void*);
    void* argument;
  };
  const auto real = pinfold::testing::next_function<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
      "pthread_create");
  if (!pinfold::testing::in_library) return real(made, how, body, argument);
  if (const int native = pinfold::testing::refusal_of("pthread_create"); native != 0) return native;
  auto* const first = static_cast<start*>(std::malloc(sizeof(start)));
  *first = {body, argument};
  const auto entry = [](void* given) -> void* {
    const start what = *static_cast<start*>(given);
    std::free(given);
    pinfold::testing::in_library = true;
    return what.body(what.argument);
  };
  return real(made, how, entry, first);
}
}

[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return pinfold::testing::refusal_of("operator new") != 0 ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const got = operator new(bytes, std::nothrow);
  if (got == nullptr) throw std::bad_alloc();
  return got;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
