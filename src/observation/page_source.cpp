// SPDX-License-Identifier: BSD-3-Clause
#include "observation/page_source.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::observation {

namespace {

// Returns whether `count` elements of `bytes` each lie in the page from `from` on, and hold the structure that is read.
bool fits(const page_header& in, std::uint64_t from, std::uint64_t bytes, std::uint64_t count, std::size_t structure,
          std::uint64_t most) noexcept {
  return from >= sizeof(page_header) && from % 8 == 0 && bytes % 8 == 0 && bytes >= structure && count <= most &&
         from <= in.page_bytes && bytes * count <= in.page_bytes - from;
}

}  // namespace

result<page_source> page_source::open(const std::string& path, bool writable,
                                      std::optional<std::uint32_t> owner) noexcept {
  page_source made;
  made.file_ =
      os::file(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY));
  if (!made.file_) {
    const int native = errno;
    return fail_errno(native == ENOENT || native == ELOOP ? errc::invalid_handle : os::code_for(native), native,
                      "cannot open the statistics page");
  }
  struct stat seen{};
  if (::fstat(made.file_.number(), &seen) != 0) return os::fail_system("cannot look at the statistics page");
  if (!S_ISREG(seen.st_mode)) return fail(errc::invalid_handle, "a statistics page is a regular file");
  if (owner && seen.st_uid != *owner)
    return fail_errno(errc::not_permitted, EPERM, "the statistics page belongs to another user");
  return made;
}

bool page_source::is_same_file(const page_source& other) const noexcept {
  struct stat one{};
  struct stat two{};
  return ::fstat(file_.number(), &one) == 0 && ::fstat(other.file_.number(), &two) == 0 && one.st_dev == two.st_dev &&
         one.st_ino == two.st_ino;
}

result<void> page_source::read(std::uint64_t from, std::span<std::byte> into) const noexcept {
  while (!into.empty()) {
    const auto got = ::pread(file_.number(), into.data(), into.size(), static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os::fail_system("cannot read the statistics page");
    if (got == 0) return fail(errc::invalid_handle, "the file is no statistics page, or was cut");
    from += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

result<page_header> page_source::header() const noexcept {
  page_header found{};
  if (auto read_it = read(0, found); !read_it) return tl::unexpected(read_it.error());
  if (found.magic != page_magic) return fail(errc::invalid_handle, "the file is no statistics page, or is damaged");
  if (found.version != page_version) return fail(errc::unsupported, "the statistics page is of another version");
  constexpr std::uint64_t largest_page = std::uint64_t{1} << 30U;
  constexpr std::uint64_t most_slots = 4 * most_caches;  // a later release may have more than this one
  constexpr std::uint64_t most = 1U << 16U;
  const bool good = found.page_bytes <= largest_page &&
                    fits(found, found.caches_from, found.cache_bytes, found.caches, sizeof(cache_slot), most_slots) &&
                    fits(found, found.events_from, found.event_bytes, found.events, sizeof(event_record), most) &&
                    fits(found, found.stacks_from, found.stack_bytes, found.stacks, sizeof(stack_record), most) &&
                    found.events > 0 && found.stacks > 0;
  if (!good) return fail(errc::invalid_handle, "the statistics page is damaged");
  return found;
}

// Releases the lock at once: readers share it, and a process that removes pages skips this page meanwhile. A held lock
// does not suffice where the number is free or a zombie's: the kernel may unmap the page a moment later.
process_life page_source::life_of_process(const page_header& of) const noexcept {
  const auto own = pid_namespace();
  const bool same_namespace = own != 0 && of.pid_namespace == own;
  if (of.locked == 1) {
    if (::flock(file_.number(), LOCK_SH | LOCK_NB) == 0) {
      ::flock(file_.number(), LOCK_UN);
      return process_life::ended;
    }
    if (errno == EWOULDBLOCK)
      return same_namespace && life_of(of.pid) == process_life::ended ? process_life::ended : process_life::runs;
  }
  return same_namespace ? life_of(of.pid, of.start_time) : process_life::unknown;
}

}  // namespace pinfold::observation
