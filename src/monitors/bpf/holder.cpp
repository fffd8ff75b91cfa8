// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/holder.hpp"

#include "os/check.hpp"
#include "os/descriptor_table.hpp"
#include "os/no_cancellation.hpp"
#include "os/service_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <span>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors {

namespace {

// Returns whether the calling thread's number is a link, or /proc cannot tell.
bool may_be_link(int number) noexcept {
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "/proc/thread-self/fd/%d", number);
  std::array<char, 64> seen{};
  const auto bytes = ::readlink(path.data(), seen.data(), seen.size());
  return bytes < 0 || std::string_view(seen.data(), static_cast<std::size_t>(bytes)).starts_with("anon_inode:bpf");
}

}  // namespace

result<void> bpf_holder::start(bpf_links links, os::file connection) noexcept {
  PINFOLD_ASSERT(!running_ && state_.load(std::memory_order_relaxed) == starting, "the thread starts once");
  for (const auto& link : links) numbers_[count_++] = link.number();
  if (connection) numbers_[count_++] = connection.number();
  connection_ = &connection;
  std::sort(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(count_));
  if (const int native = create(); native != 0)
    return fail_errno(errc::out_of_resources, native, "the monitor's thread could not be started");
  return {};
}

int bpf_holder::create() noexcept {
  const detail::no_cancellation whole;
  if (const int native = os::start_service_thread(thread_, nullptr, main, this); native != 0) return native;
  state_.wait(starting, std::memory_order_acquire);
  running_ = state_.load(std::memory_order_acquire) == holding;
  if (running_) return 0;
  ::pthread_join(thread_, nullptr);
  return native_;
}

void bpf_holder::end() noexcept {
  if (!running_ || os::this_process() != process_) return;
  const detail::no_cancellation whole;
  running_ = false;
  state_.store(ending, std::memory_order_release);
  state_.notify_one();
  ::pthread_join(thread_, nullptr);
}

// Another thread may have closed the descriptors before this one had its table, and opened files with their numbers.
int bpf_holder::take_over() noexcept {
  const std::span<const int> all(numbers_.data(), count_);
  if (const int native = os::keep_only(all); native != 0) return native;
  const auto is_ours = [&](int number) {
    if (number == connection_->number()) return connection_->still_there();
    return ::fcntl(number, F_GETFD) >= 0 && may_be_link(number);
  };
  return std::all_of(all.begin(), all.end(), is_ours) ? 0 : EBADF;
}

// Closes the descriptors itself: the kernel closes a thread's table after the thread was joined. Not by libc's
// function, with which ThreadSanitizer would take them for the process's descriptors of these numbers.
void* bpf_holder::main(void* self) noexcept {
  auto& mine = *static_cast<bpf_holder*>(self);
  ::pthread_setname_np(::pthread_self(), "pinfold-bpf");
  mine.native_ = mine.take_over();
  mine.state_.store(mine.native_ == 0 ? holding : failed, std::memory_order_release);
  mine.state_.notify_one();
  if (mine.native_ != 0) return nullptr;
  mine.state_.wait(holding, std::memory_order_acquire);
  for (std::size_t i = 0; i < mine.count_; ++i) ::syscall(SYS_close, mine.numbers_[i]);
  return nullptr;
}

}  // namespace pinfold::monitors
