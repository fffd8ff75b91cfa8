// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/client.hpp"
#include "fd_passing/process.hpp"
#include "importers/memfd/mapping.hpp"
#include "os/no_cancellation.hpp"
#include "os/page_bytes.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace pinfold {

namespace {

using namespace std::chrono_literals;

constexpr std::byte written{0x5a};
constexpr auto child_timeout = 60s;  // the child may get no processor for long

result<os::file> fetch_by_pidfd(const memfd_handle& handle) noexcept {
  const auto process = fd_passing::open_process(memfd::behind(handle).from);
  if (!process) return tl::unexpected(process.error());
  return fd_passing::duplicate_from(*process, handle.descriptor);
}

result<os::file> fetch_by_socket(const memfd_handle& handle) noexcept {
  const auto socket = fd_passing::connect_to(memfd::behind(handle).from);
  if (!socket) return tl::unexpected(socket.error());
  return fd_passing::ask(*socket, os::file(), handle.serial);
}

/// Imports the memory in the child and checks its bytes. The child's parent may have threads, so neither this nor any
/// function that it calls allocates or locks.
result<void> import_once(memfd_via via, const memfd_handle& handle) noexcept {
  const memfd_importer_options options{.via = via};
  auto fetched = via == memfd_via::scm ? fetch_by_socket(handle) : fetch_by_pidfd(handle);
  if (!fetched) return tl::unexpected(fetched.error());
  if (auto right = memfd::verify(*fetched, handle, options); !right) return right;
  const auto mapped = memfd::map_imported(*fetched, handle, options);
  if (!mapped) return tl::unexpected(mapped.error());
  const auto* bytes = static_cast<const std::byte*>(*mapped);
  if (std::all_of(bytes, bytes + handle.size, [](std::byte one) { return one == written; })) return {};
  return fail(errc::driver_error, "the imported memory does not contain what the exporter wrote");
}

/// The child's result, as sent through the pipe; the message is a literal, at the same address in the parent.
struct verdict {
  bool works;
  error failure;
};

[[noreturn]] void run_child(memfd_via via, const memfd_handle& handle, int pipe_end) noexcept {
  const auto tried = import_once(via, handle);
  const verdict outcome{tried.has_value(), tried ? error{} : tried.error()};
  const bool sent = ::write(pipe_end, &outcome, sizeof outcome) == sizeof outcome;
  ::_exit(sent ? 0 : 1);
}

result<void> read_verdict(const os::file& pipe_end) noexcept {
  verdict outcome{};
  if (!os::readable_within(pipe_end, child_timeout))
    return fail(errc::timed_out, "the probe's child process did not answer");
  if (::read(pipe_end.number(), &outcome, sizeof outcome) != sizeof outcome) {
    return fail(errc::driver_error, "the probe's child process ended without an answer");
  }
  return outcome.works ? result<void>{} : tl::unexpected(outcome.failure);
}

result<void> try_in_child(memfd_via via, const memfd_handle& handle) noexcept {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return os::fail_system("cannot create a pipe");
  const os::file reading(ends[0]);
  os::file writing(ends[1]);
  if (!reading || !writing) return os::fail_system("no descriptor is left for a pipe");
  const pid_t child = ::fork();
  if (child < 0) return os::fail_system("cannot fork");
  if (child == 0) run_child(via, handle, writing.number());
  writing = os::file();
  auto tried = read_verdict(reading);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return tried;
}

}  // namespace

result<void> probe_memfd(memfd_via via) noexcept {
  const detail::no_cancellation whole;
  if (via == memfd_via::automatic) {
    auto direct = probe_memfd(memfd_via::pidfd);
    return direct ? direct : probe_memfd(memfd_via::scm);
  }
  auto exporter = memfd_exporter::create({.access = memfd_access::read_only, .serve = via == memfd_via::scm});
  if (!exporter) return tl::unexpected(exporter.error());
  auto buffer = exporter->allocate(os::page_bytes());
  if (!buffer) return tl::unexpected(buffer.error());
  std::fill_n(buffer->data(), buffer->size(), written);
  return try_in_child(via, buffer->handle());
}

}  // namespace pinfold
