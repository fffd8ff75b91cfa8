// SPDX-License-Identifier: BSD-3-Clause
// Random calls of the C interface with random arguments, most of them wrong. Nothing aborts, nothing is lost: at the
// end every registration is closed once.
#include <pinfold/pinfold.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fuzzer/FuzzedDataProvider.h>
#include <set>
#include <vector>

namespace {

struct world {
  std::set<std::uint64_t> open;
  std::uint64_t next = 0;
  int refuse_opens = 0;
  int refuse_closes = 0;
};

int open_it(void* self, const pinfold_open_request*, pinfold_registration* made, pinfold_error* failure) {
  auto& own = *static_cast<world*>(self);
  if (own.refuse_opens > 0) {
    --own.refuse_opens;
    failure->native = 12;
    return own.refuse_opens % 2 == 0 ? PINFOLD_E_OUT_OF_RESOURCES : 77;
  }
  made->words[0] = ++own.next;
  own.open.insert(own.next);
  return PINFOLD_OK;
}

int close_it(void* self, const pinfold_registration* made, pinfold_error*) {
  auto& own = *static_cast<world*>(self);
  if (own.refuse_closes > 0) {
    --own.refuse_closes;
    return PINFOLD_E_DRIVER_ERROR;
  }
  if (own.open.erase(made->words[0]) != 1) std::abort();
  return PINFOLD_OK;
}

int answer_of(void* self, const pinfold_entry* entry) {
  static_cast<std::vector<std::uint64_t>*>(self)->push_back(entry->base);
  return 0;
}

class calls {
 public:
  calls(FuzzedDataProvider& data, world& of) : data_(data), world_(of) {
    pinfold_options options;
    if (pinfold_options_init(&options, sizeof options) != PINFOLD_OK) std::abort();
    options.monitor = PINFOLD_MONITOR_MANUAL;
    options.flags = data_.ConsumeIntegralInRange<std::uint32_t>(0, 600) & ~std::uint32_t{PINFOLD_REAPER};
    options.full = data_.ConsumeIntegralInRange<std::uint32_t>(0, 3);
    options.max_count = data_.ConsumeIntegralInRange<std::size_t>(0, 6);
    options.full_timeout_ms = options.wait_timeout_ms = options.drain_timeout_ms = 0;
    pinfold_registrar table{};
    table.size = sizeof table;
    table.name = "fuzzed";
    table.granularity = data_.PickValueInArray<std::size_t>({0, 1, 3, 4096, SIZE_MAX});
    table.access = data_.ConsumeIntegralInRange<std::uint32_t>(0, 33);
    table.open = open_it;
    table.close = close_it;
    static_cast<void>(pinfold_create(&table, &world_, &options, &cache_));
  }

  ~calls() {
    world_.refuse_closes = 0;
    for (const auto& one : leases_) static_cast<void>(pinfold_release(one));
    for (const void* one : registrations_) static_cast<void>(pinfold_release_registration(one));
    if (cache_ != nullptr && pinfold_destroy(cache_) != PINFOLD_OK) std::abort();
  }

  void one() {
    switch (data_.ConsumeIntegralInRange(0, 13)) {
      case 0:
      case 1: return keep(pinfold_acquire(cache_, address(), bytes(), access()));
      case 2: return keep(pinfold_find(cache_, address(), bytes(), access()));
      case 3: return acquire_with_options();
      case 4: return release();
      case 5: return detach();
      case 6:
        if (!leases_.empty()) keep(pinfold_share(leases_.back()));
        return;
      case 7: return batch();
      case 8: return static_cast<void>(pinfold_invalidate(cache_, address(), bytes()));
      case 9: return static_cast<void>(pinfold_evict(cache_, data_.ConsumeIntegralInRange<std::size_t>(0, 9)));
      case 10: return static_cast<void>(data_.ConsumeBool() ? pinfold_flush(cache_) : pinfold_progress(cache_));
      case 11: return look();
      case 12:
        world_.refuse_opens = data_.ConsumeIntegralInRange(0, 3);
        world_.refuse_closes = data_.ConsumeIntegralInRange(0, 3);
        return;
      default: return static_cast<void>(pinfold_quiesce(cache_));
    }
  }

 private:
  // In few places of the address space: each 4 GiB that were ever registered have counters, which stay.
  const void* address() {
    if (data_.ConsumeBool())
      return reinterpret_cast<const void*>(data_.ConsumeIntegralInRange<std::uintptr_t>(0, 9) << 12U);
    const auto place = data_.PickValueInArray<std::uintptr_t>({0, 0x7fffULL << 32U, 0x8000ULL << 32U, ~0ULL << 32U});
    return reinterpret_cast<const void*>(place + data_.ConsumeIntegral<std::uint32_t>());
  }
  std::size_t bytes() {
    if (data_.ConsumeBool()) return data_.ConsumeIntegralInRange<std::size_t>(0, 20000);
    return data_.PickValueInArray<std::size_t>({1ULL << 32U, 1ULL << 47U, SIZE_MAX - 9999}) +
           data_.ConsumeIntegralInRange<std::size_t>(0, 9999);
  }
  std::uint32_t access() { return data_.ConsumeIntegralInRange<std::uint32_t>(0, 33); }

  void keep(pinfold_lease lease) {
    if (lease.pin == 0) return;
    if (pinfold_registration_of(lease) == nullptr) std::abort();
    leases_.push_back(lease);
  }

  void acquire_with_options() {
    pinfold_acquire_options how{};
    how.size = data_.ConsumeBool() ? sizeof how : data_.ConsumeIntegralInRange<std::size_t>(0, sizeof how);
    how.flags = data_.ConsumeIntegralInRange<std::uint32_t>(0, 9);
    how.file = data_.ConsumeIntegralInRange(-2, 0);
    keep(pinfold_acquire_with(cache_, address(), bytes(), access(), &how));
  }

  void release() {
    if (leases_.empty()) return;
    static_cast<void>(pinfold_release(leases_.back()));
    leases_.pop_back();
  }

  void detach() {
    if (!registrations_.empty() && data_.ConsumeBool()) {
      static_cast<void>(pinfold_release_registration(registrations_.back()));
      registrations_.pop_back();
    } else if (!leases_.empty()) {
      registrations_.push_back(pinfold_detach(leases_.back()));
      leases_.pop_back();
    }
  }

  void batch() {
    std::array<pinfold_range, 3> ranges;
    for (auto& one : ranges) one = {reinterpret_cast<std::uintptr_t>(address()), bytes()};
    std::array<pinfold_lease, 3> made{};
    const pinfold_batch_options how{sizeof how, 1, nullptr};  // the world is for one thread
    if (pinfold_acquire_batch(cache_, ranges.data(), ranges.size(), access(), &how, made.data()) != PINFOLD_OK) return;
    for (const auto& one : made) keep(one);
  }

  void look() {
    std::vector<std::uint64_t> seen;
    static_cast<void>(pinfold_dump(cache_, answer_of, &seen));
    pinfold_statistics now{};
    now.size = data_.ConsumeBool() ? sizeof now : data_.ConsumeIntegralInRange<std::size_t>(0, sizeof now);
    static_cast<void>(pinfold_statistics_of(cache_, &now));
    std::array<char, 16> text{};
    static_cast<void>(pinfold_describe(cache_, text.data(), data_.ConsumeIntegralInRange<std::size_t>(0, text.size())));
  }

  FuzzedDataProvider& data_;
  world& world_;
  pinfold_cache* cache_ = nullptr;
  std::vector<pinfold_lease> leases_;
  std::vector<const void*> registrations_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  FuzzedDataProvider data(input, size);
  world all;
  {
    calls made(data, all);
    while (data.remaining_bytes() > 0) made.one();
  }
  if (!all.open.empty()) std::abort();
  return 0;
}
