// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_cancellation.hpp"
#include "os/this_process.hpp"

#include <pinfold/remote_key.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include <utility>

namespace pinfold {

namespace {

using word = std::atomic_ref<std::uint64_t>;

constexpr bool is_issued(std::uint64_t generation) noexcept { return generation % 2 == 1; }

// Even: no token is issued. Without random numbers the time distinguishes it well enough from an earlier process.
std::uint64_t first_generation() noexcept {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof number))
    number = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return number / 4 * 2;  // far from the largest number
}

std::uint64_t load(const std::uint64_t& from) noexcept {
  return word(const_cast<std::uint64_t&>(from)).load(std::memory_order_acquire);
}

}  // namespace

// Needs no lock: each word stands for itself, and a thread issues or withdraws by one compare-and-exchange.
struct remote_key_table::state {
  state() = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (mapped_bytes > 0) ::munmap(words.data(), mapped_bytes);
  }

  void own(std::span<std::uint64_t> in, std::size_t mapped) noexcept {
    words = in;
    mapped_bytes = mapped;
    const auto first = first_generation();
    for (std::uint64_t& one : words) word(one).store(first, std::memory_order_relaxed);
  }

  // The words may be in memory that a child of fork(2) shares.
  [[nodiscard]] result<void> check_process() const noexcept {
    if (os::this_process() == process) return {};
    return fail(errc::closed, "the table of keys belongs to the parent of this process");
  }

  const std::uint64_t process = os::this_process();
  std::span<std::uint64_t> words{};
  std::size_t mapped_bytes = 0;        // 0: the caller's memory
  std::atomic<std::uint32_t> next{0};  // where the search for a free slot begins
};

remote_key_table::remote_key_table(std::shared_ptr<state> made) noexcept : state_(std::move(made)) {}

result<remote_key_table> remote_key_table::create(std::size_t slots) noexcept try {
  const detail::no_cancellation guard;
  if (slots == 0 || slots > UINT32_MAX) return fail(errc::invalid_argument, "a table has 1 to 2^32 - 1 slots");
  auto made = std::make_shared<state>();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = (slots * sizeof(std::uint64_t) + page - 1) / page * page;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errc::out_of_resources, errno, "no memory for the table of keys");
  made->own({static_cast<std::uint64_t*>(memory), slots}, bytes);
  return remote_key_table(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the table of keys");
}

result<remote_key_table> remote_key_table::create_in(std::span<std::uint64_t> words) noexcept try {
  const detail::no_cancellation guard;
  if (words.empty() || words.size() > UINT32_MAX)
    return fail(errc::invalid_argument, "a table has 1 to 2^32 - 1 slots");
  auto made = std::make_shared<state>();
  made->own(words, 0);
  return remote_key_table(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the table of keys");
}

std::span<const std::uint64_t> remote_key_table::words() const noexcept { return state_->words; }

result<remote_key_token> remote_key_table::issue(std::uint64_t address, std::uint64_t length,
                                                 std::uint64_t key) noexcept {
  if (auto own = state_->check_process(); !own) return tl::unexpected(own.error());
  if (length == 0 || address + length <= address)
    return fail(errc::invalid_range, "the range is empty or wraps around");
  const std::uint64_t slots = state_->words.size();
  const std::uint64_t first = state_->next.fetch_add(1, std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < slots; ++i) {
    const auto slot = static_cast<std::uint32_t>((first + i) % slots);
    std::uint64_t now = load(state_->words[slot]);
    // A reader that sees the token got it from the caller, after this.
    if (!is_issued(now) && word(state_->words[slot]).compare_exchange_strong(now, now + 1, std::memory_order_acq_rel))
      return remote_key_token{address, length, key, now + 1, slot};
  }
  return fail(errc::out_of_resources, "every slot of the table has a valid key");
}

result<void> remote_key_table::withdraw(const remote_key_token& token) noexcept {
  if (auto own = state_->check_process(); !own) return own;
  if (token.slot >= state_->words.size() || !is_issued(token.generation))
    return fail(errc::invalid_argument, "the key is not of this table");
  std::uint64_t expected = token.generation;
  // Sequentially consistent, so that the caller's next step, at the device, comes after it on every machine.
  if (word(state_->words[token.slot]).compare_exchange_strong(expected, expected + 1, std::memory_order_seq_cst))
    return {};
  return fail(errc::stale_handle, "the key was withdrawn before");
}

bool remote_key_table::valid(const remote_key_token& token) const noexcept { return is_current(token, words()); }

std::size_t remote_key_table::count() const noexcept {
  return static_cast<std::size_t>(std::count_if(state_->words.begin(), state_->words.end(),
                                                [](const std::uint64_t& one) { return is_issued(load(one)); }));
}

bool is_current(const remote_key_token& token, std::span<const std::uint64_t> generations) noexcept {
  return token.slot < generations.size() && is_issued(token.generation) &&
         load(generations[token.slot]) == token.generation;
}

}  // namespace pinfold
