// SPDX-License-Identifier: BSD-3-Clause
#include "core/cache_number.hpp"

#include "core/hints.hpp"
#include "os/wiped_pages.hpp"

#include <pinfold/detail/ledger.hpp>

#include <array>
#include <new>

namespace pinfold::core {

namespace {

struct table {
  std::array<std::atomic<bool>, detail::ledger::most_caches> taken{};
  std::atomic<bool> hints_forgotten{false};
};

std::atomic<table*> current{nullptr};

// Used where the kernel cannot wipe (before Linux 4.14): a child cannot take the numbers that its parent had.
constinit table not_wiped;

table& here() noexcept {
  if (table* const wiped = os::wiped_object(current)) return *wiped;
  table* found = nullptr;
  return current.compare_exchange_strong(found, &not_wiped, std::memory_order_acq_rel) ? not_wiped : *found;
}

// Threads that call this at the same time may all clear the hints: no lock, because it could be held at a fork.
std::atomic<bool>* numbers() noexcept {
  table& all = here();
  if (!all.hints_forgotten.load(std::memory_order_acquire)) {
    forget_hints();
    all.hints_forgotten.store(true, std::memory_order_release);
  }
  return all.taken.data();
}

// Number 0 belongs to no cache.
std::uint32_t take(std::atomic<bool>* taken) noexcept {
  for (std::uint32_t number = 1; number < detail::ledger::most_caches; ++number)
    if (!taken[number].load(std::memory_order_relaxed) && !taken[number].exchange(true, std::memory_order_acquire))
      return number;
  return 0;
}

}  // namespace

cache_number::cache_number() noexcept
    : taken_(numbers()),
      value_(take(taken_)),
      hits_before_(detail::ledger::hits(value_)),
      finds_before_(detail::ledger::finds(value_)) {}

cache_number::~cache_number() {
  if (value_ != 0) taken_[value_].store(false, std::memory_order_release);
}

}  // namespace pinfold::core
