// SPDX-License-Identifier: BSD-3-Clause
// Makes the process's board. Separate from board.cpp, which the thread sanitizer must not look into: here it has to see
// that a thread that finds the board finds it constructed.
#include "invalidation/board.hpp"

#include "os/wiped_pages.hpp"

#include <new>
#include <pthread.h>
#include <sys/mman.h>

namespace pinfold::watch {

std::atomic<board*> board::made{nullptr};

namespace {

std::atomic<std::uint64_t> last_process{0};  // inherited by children, so that their numbers differ from their parents'

// A process's generations begin at its number, shifted by this. Hooks may count up in a child before it has a number,
// and do not get that far.
constexpr unsigned process_shift = 44;

}  // namespace

// Wipes the board in a child where the kernel does not (before Linux 4.14).
void board::wipe() noexcept {
  board* here = if_there();
  here->process_.store(0);
  here->generation_.store(0);
  here->outstanding_.store(0);
  here->filled_.store(0);
}

board* board::make() {
  void* fresh = wiped_pages(sizeof(board));
  const bool wiped = fresh != nullptr;
  if (!wiped) fresh = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) throw std::bad_alloc();
  auto* mine = new (fresh) board;
  board* none = nullptr;
  if (!made.compare_exchange_strong(none, mine)) {
    ::munmap(fresh, sizeof(board));
    return none;
  }
  if (!wiped && ::pthread_atfork(nullptr, nullptr, wipe) != 0) throw std::bad_alloc();
  return mine;
}

board& board::here() {
  board* mine = if_there();
  if (mine == nullptr) mine = make();
  std::uint64_t wiped = 0;
  if (mine->process_.load() != 0) return *mine;
  const auto number = ++last_process;
  if (mine->process_.compare_exchange_strong(wiped, number)) mine->generation_.fetch_add(number << process_shift);
  return *mine;
}

}  // namespace pinfold::watch
