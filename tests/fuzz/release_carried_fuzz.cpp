// SPDX-License-Identifier: BSD-3-Clause
// Random steps of the release protocol over a channel of the program, with an honest importer, a peer that forges
// answers, and forged requests. Nothing aborts, and memory is freed only when the honest importer has let it go.
#include <pinfold/release/message.hpp>
#include <pinfold/release_carried.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fuzzer/FuzzedDataProvider.h>
#include <vector>

namespace {

constexpr std::size_t page = 4096;
constexpr std::uint64_t importer = 1, forger = 2;

using message = std::array<std::byte, PINFOLD_RELEASE_MESSAGE_BYTES>;

void require(bool holds) {
  if (!holds) std::abort();
}

struct shared_buffer {
  pinfold_memfd_buffer* memory = nullptr;
  std::array<unsigned char, PINFOLD_MEMFD_HANDLE_BYTES> handle{};
  pinfold_release_id id{};
  std::vector<pinfold_lease> leases;
  bool lent = false;  ///< to the honest importer
  bool retired = false;
};

class protocol {
 public:
  explicit protocol(FuzzedDataProvider& data) : data_(data) {
    require(pinfold_memfd_exporter_create(0, &exporter_) == PINFOLD_OK);
    for (auto& one : buffers_) {
      require(pinfold_memfd_allocate(exporter_, page, &one.memory) == PINFOLD_OK);
      require(pinfold_memfd_handle(one.memory, one.handle.data(), one.handle.size()) == PINFOLD_OK);
      require(pinfold_release_id_of(one.handle.data(), one.handle.size(), &one.id) == PINFOLD_OK);
    }
    require(pinfold_release_registry_create(buffers_[0].id.exporter, &registry_) == PINFOLD_OK);
    for (const auto& one : buffers_) require(pinfold_release_registry_add(registry_, one.id.serial) == PINFOLD_OK);
    require(pinfold_release_listener_create(send, this, &listener_) == PINFOLD_OK);
    require(pinfold_create_memfd_carried(listener_, 0, nullptr, &cache_) == PINFOLD_OK);
  }
  protocol(const protocol&) = delete;
  protocol& operator=(const protocol&) = delete;
  ~protocol() {
    for (auto& one : buffers_)
      while (!one.leases.empty()) release(one);
    require(pinfold_destroy(cache_) == PINFOLD_OK);
    require(pinfold_release_listener_destroy(listener_) == PINFOLD_OK);
    pinfold_release_registry_destroy(registry_);
    for (const auto& one : buffers_) pinfold_memfd_free(one.memory);
    pinfold_memfd_exporter_destroy(exporter_);
  }

  void one() {
    auto& on = buffers_[data_.ConsumeIntegralInRange<std::size_t>(0, buffers_.size() - 1)];
    switch (data_.ConsumeIntegralInRange(0, 12)) {
      case 0:
      case 1: return import(on);
      case 2: return release(on);
      case 3: return retire(on);
      case 4: return send_requests(importer);
      case 5: return pass_answer();
      case 6: return static_cast<void>(pinfold_release_listener_progress(listener_));
      case 7: return forge();
      case 8: return damage();
      case 9: refuses_ = data_.ConsumeIntegralInRange(0, 2); return;
      case 10: releases_in_send_ = data_.ConsumeBool(); return;
      case 11: return change_forger(on);
      default: return static_cast<void>(pinfold_flush(cache_));
    }
  }

  /// Retired memory that the exporter may free is not leased, and cannot be any more.
  void check() {
    for (const auto& one : buffers_) {
      if (!one.lent || !one.retired) continue;
      pinfold_retire_report report{};
      report.size = sizeof report;
      require(pinfold_release_registry_wait(registry_, one.id.serial, 0, &report) == PINFOLD_OK);
      if (report.state != PINFOLD_RETIRE_FREED) continue;
      require(one.leases.empty());
      require(acquire(one).pin == 0);
    }
  }

 private:
  static int send(void* self, std::uint64_t exporter, const void* answer, std::size_t bytes, pinfold_error* failure) {
    auto& own = *static_cast<protocol*>(self);
    require(bytes == sizeof(message));
    if (own.refuses_ > 0) {
      --own.refuses_;
      failure->native = 11;
      return PINFOLD_E_DRIVER_ERROR;
    }
    if (exporter == own.buffers_[0].id.exporter) {
      std::memcpy(&own.answers_.emplace_back(), answer, bytes);
    }
    if (own.releases_in_send_) own.release(own.buffers_[0]);
    return PINFOLD_OK;
  }

  [[nodiscard]] pinfold_lease acquire(const shared_buffer& on) {
    return pinfold_import(cache_, 7, on.handle.data(), on.handle.size(),
                          reinterpret_cast<std::uintptr_t>(pinfold_memfd_data(on.memory)), page);
  }

  // The importer gets no handle of memory that it was not lent.
  void import(shared_buffer& on) {
    on.lent = pinfold_release_registry_lend(registry_, on.id.serial, importer, 0) == PINFOLD_OK || on.lent;
    if (!on.lent) return;
    if (const auto lease = acquire(on); lease.pin != 0) on.leases.push_back(lease);
  }

  void release(shared_buffer& on) {
    if (on.leases.empty()) return;
    const auto last = on.leases.back();
    on.leases.pop_back();
    static_cast<void>(pinfold_release(last));
  }

  void retire(shared_buffer& on) {
    on.retired = pinfold_release_registry_begin_retire(registry_, on.id.serial, 0) == PINFOLD_OK || on.retired;
  }

  void send_requests(std::uint64_t peer) {
    message request;
    std::size_t bytes = 0;
    while (pinfold_release_registry_next_request(registry_, peer, request.data(), request.size(), &bytes) ==
               PINFOLD_OK &&
           bytes > 0) {
      if (data_.ConsumeBool()) {
        require(pinfold_release_registry_take_back(registry_, peer, request.data(), bytes) == PINFOLD_OK);
        return;
      }
      if (peer == importer) static_cast<void>(pinfold_release_listener_receive(listener_, request.data(), bytes));
    }
  }

  void pass_answer() {
    if (answers_.empty()) return;
    require(pinfold_release_registry_receive(registry_, importer, answers_.front().data(), sizeof(message)) ==
            PINFOLD_OK);
    answers_.pop_front();
  }

  [[nodiscard]] pinfold::release_message any_message() {
    pinfold::release_message made;
    made.exporter = data_.ConsumeBool() ? buffers_[0].id.exporter : data_.ConsumeIntegral<std::uint64_t>();
    made.serial = data_.ConsumeBool() ? buffers_[0].id.serial : buffers_[1].id.serial;
    made.retirement = data_.ConsumeIntegralInRange<std::uint64_t>(0, 4);
    made.tag = data_.ConsumeIntegralInRange<std::uint64_t>(0, 2);
    made.kind = static_cast<pinfold::release_kind>(data_.ConsumeIntegralInRange(0, 6));
    made.state = static_cast<pinfold::release_state>(data_.ConsumeIntegralInRange(0, 4));
    return pinfold::sealed(made);
  }

  void forge() {
    const auto forged = any_message();
    if (data_.ConsumeBool())
      static_cast<void>(pinfold_release_registry_receive(registry_, forger, &forged, sizeof forged));
    else
      static_cast<void>(pinfold_release_listener_receive(listener_, &forged, sizeof forged));
  }

  // What is damaged, or cut short, is refused.
  void damage() {
    const auto whole = any_message();
    auto damaged = whole;
    reinterpret_cast<unsigned char*>(&damaged)[data_.ConsumeIntegralInRange<std::size_t>(0, sizeof damaged - 1)] ^=
        data_.ConsumeIntegralInRange<unsigned char>(1, 255);
    const auto length = data_.ConsumeIntegralInRange<std::size_t>(0, sizeof damaged);
    require(pinfold_release_listener_receive(listener_, &damaged, length) == PINFOLD_E_INVALID_ARGUMENT);
    require(pinfold_release_registry_receive(registry_, importer, &damaged, length) == PINFOLD_E_INVALID_ARGUMENT);
  }

  void change_forger(const shared_buffer& on) {
    switch (data_.ConsumeIntegralInRange(0, 3)) {
      case 0: return static_cast<void>(pinfold_release_registry_lend(registry_, on.id.serial, forger, 1));
      case 1: return static_cast<void>(pinfold_release_registry_died(registry_, forger));
      case 2:
        return static_cast<void>(pinfold_release_registry_lost(registry_, data_.ConsumeBool() ? forger : importer));
      default: return send_requests(forger);
    }
  }

  FuzzedDataProvider& data_;
  pinfold_memfd_exporter* exporter_ = nullptr;
  std::array<shared_buffer, 2> buffers_;
  pinfold_release_registry* registry_ = nullptr;
  pinfold_release_listener* listener_ = nullptr;
  pinfold_cache* cache_ = nullptr;
  std::deque<message> answers_;
  int refuses_ = 0;
  bool releases_in_send_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  FuzzedDataProvider data(input, size);
  protocol on(data);
  for (int steps = 0; data.remaining_bytes() > 0 && steps < 200; ++steps) {
    on.one();
    on.check();
  }
  return 0;
}
