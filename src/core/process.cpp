// SPDX-License-Identifier: BSD-3-Clause
#include "core/process.hpp"

#include <new>
#include <pthread.h>
#include <sys/mman.h>

namespace pinfold::core {

namespace {

using word = std::atomic<std::uint64_t>;

std::atomic<word*> page{nullptr};
std::atomic<std::uint64_t> last{0};  // inherited by children, so that theirs differ from their parents'

constexpr std::size_t page_bytes = 4096;

void wipe() noexcept { page.load()->store(0); }

word* make_page() {
  void* fresh = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) throw std::bad_alloc();
  auto* made = new (fresh) word{0};
  word* none = nullptr;
  if (!page.compare_exchange_strong(none, made)) {
    ::munmap(fresh, page_bytes);
    return none;
  }
  if (::madvise(fresh, page_bytes, MADV_WIPEONFORK) != 0 && ::pthread_atfork(nullptr, nullptr, wipe) != 0)
    throw std::bad_alloc();
  return made;
}

}  // namespace

const word& process_word() {
  word* here = page.load();
  if (here == nullptr) here = make_page();
  std::uint64_t wiped = 0;
  if (here->load() == 0) here->compare_exchange_strong(wiped, ++last);
  return *here;
}

std::uint64_t this_process() noexcept {
  const word* here = page.load();
  return here == nullptr ? 0 : here->load();
}

}  // namespace pinfold::core
