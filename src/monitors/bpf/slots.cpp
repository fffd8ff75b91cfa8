// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/slots.hpp"

#include "monitors/bpf/call.hpp"
#include "monitors/bpf/failure.hpp"
#include "os/check.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <sys/mman.h>
#include <sys/random.h>

namespace pinfold::monitors {

namespace {

constexpr std::size_t owners_bytes = pinfold_slots * sizeof(std::uint64_t);

// Returns more than any earlier ring can have counted: a ring counts less than one a nanosecond.
std::uint64_t fresh_generation() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

pinfold_area* map_ring(const os::file& ring) noexcept {
  void* const at = ::mmap(nullptr, sizeof(pinfold_area), PROT_READ | PROT_WRITE, MAP_SHARED, ring.number(), 0);
  return at == MAP_FAILED ? nullptr : static_cast<pinfold_area*>(at);
}

bool make_ring(bpf_slot& at) noexcept {
  at.ring = os::file(bpf_make_value_map(sizeof(pinfold_area)));
  if (!at.ring) return false;
  pinfold_area* const area = map_ring(at.ring);
  if (area == nullptr) return false;
  at.first_generation = fresh_generation();
  area->generation = at.first_generation;
  ::munmap(area, sizeof *area);
  return true;
}

void close_ring(const os::file& ring) noexcept {
  pinfold_area* const area = map_ring(ring);
  if (area == nullptr) return;
  std::atomic_ref(area->closed).store(1);
  const auto number = std::atomic_ref(area->generation).fetch_add(1);
  pinfold_record& last = area->records[number % pinfold_records];
  last.begin = 0;
  last.end = UINT64_MAX;
  std::atomic_ref(last.check).store(pinfold_check(number, last.begin, last.end));
  ::munmap(area, sizeof *area);
}

}  // namespace

void bpf_accept(const pinfold_secret& secret) noexcept {
  static_cast<void>(::syscall(SYS_prctl, pinfold_prctl, secret.first, secret.second, 0UL, 0UL));
}

result<bpf_slots> bpf_slots::load() noexcept {
  auto programs = bpf_programs::load();
  if (!programs) return tl::unexpected(programs.error());
  void* const at = ::mmap(nullptr, owners_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, programs->slots.number(), 0);
  if (at == MAP_FAILED) return bpf_fail("cannot map the list of slots");
  return bpf_slots(std::move(*programs), static_cast<std::uint64_t*>(at));
}

bpf_slots::bpf_slots(bpf_slots&& other) noexcept
    : programs_(std::move(other.programs_)),
      owners_(std::exchange(other.owners_, nullptr)),
      reserved_(other.reserved_),
      reservations_(other.reservations_) {}

bpf_slots::~bpf_slots() {
  if (owners_ != nullptr) ::munmap(owners_, owners_bytes);
}

bool bpf_slots::replace(std::uint32_t number, std::uint64_t before, std::uint64_t now) noexcept {
  PINFOLD_ASSERT(owners_ != nullptr && number < pinfold_slots, "each slot has an owner in the mapped list");
  return std::atomic_ref(owners_[number]).compare_exchange_strong(before, now);
}

bool bpf_slots::find_free(bpf_slot& at) noexcept {
  PINFOLD_ASSERT(reservations_ % 2 == 1, "a reservation is an odd number");
  at.reservation = reservations_;
  for (at.number = 0; at.number < pinfold_slots; ++at.number)
    if (!reserved_.test(at.number) && replace(at.number, 0, at.reservation)) {
      reserved_.set(at.number);
      reservations_ += 2;
      return true;
    }
  return false;
}

// Makes a ring and finds a number for it, which no process can use yet.
result<bpf_slot> bpf_slots::prepare() noexcept {
  bpf_slot made;
  if (!make_ring(made)) return bpf_fail("cannot create a ring");
  if (::getrandom(&made.secret, sizeof made.secret, 0) != sizeof made.secret)
    return bpf_fail("cannot get random numbers");
  if (!find_free(made))
    return fail(errc::out_of_resources, "the kernel programs already serve the maximum number of processes");
  return made;
}

void bpf_slots::reserve(std::span<result<bpf_slot>> made) noexcept {
  PINFOLD_ASSERT(made.size() <= most_at_once, "as many at once as there is room for");
  std::array<std::uint32_t, most_at_once> numbers{};
  std::array<int, most_at_once> rings{};
  std::uint32_t count = 0;
  for (auto& one : made) {
    one = prepare();
    if (!one) continue;
    numbers[count] = one->number;
    rings[count++] = one->ring.number();
  }
  auto listed = count == 0 ? 0 : bpf_update_many(programs_.rings.number(), numbers.data(), rings.data(), count);
  const int native = errno;
  for (auto& one : made) {
    if (!one) continue;
    errno = native;
    pinfold_invitation invitation{one->reservation, one->number, pinfold_waiting, 0, 0};
    const bool has_ring = listed > 0;
    if (has_ring) --listed;
    if (has_ring && bpf_update(programs_.invitations.number(), &one->secret, &invitation)) continue;
    result<bpf_slot> failure = bpf_fail("cannot add a process to the kernel programs' maps");
    release(*one);
    one = std::move(failure);
  }
}

result<bpf_slot> bpf_slots::reserve() noexcept {
  result<bpf_slot> made;
  reserve({&made, 1});
  return made;
}

result<pinfold_invitation> bpf_slots::answer(const bpf_slot& at) noexcept {
  pinfold_invitation found{};
  if (!bpf_look_up(programs_.invitations.number(), &at.secret, &found))
    return bpf_fail("the kernel programs have no such invitation");
  bpf_remove(programs_.invitations.number(), &at.secret);
  return found;
}

bool bpf_slots::is_taken(const bpf_slot& at) const noexcept {
  const auto owner = owner_of(at.number);
  return owner != 0 && owner != at.reservation;
}

std::uint64_t bpf_slots::owner_of(std::uint32_t number) const noexcept {
  PINFOLD_ASSERT(owners_ != nullptr && number < pinfold_slots, "each slot has an owner in the mapped list");
  return std::atomic_ref(owners_[number]).load();
}

void bpf_slots::release(bpf_slot& at) noexcept {
  bpf_remove(programs_.invitations.number(), &at.secret);
  close_ring(at.ring);
  at.ring = os::file();
  static_cast<void>(replace(at.number, at.reservation, 0));  // fails if it was taken; the programs then free it
  reserved_.reset(at.number);
}

}  // namespace pinfold::monitors
