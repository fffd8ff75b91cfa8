// SPDX-License-Identifier: BSD-3-Clause
// A process with GPU memory that shares it on command: see cuda_peer.hpp.
#include "support/fixtures/cuda_here.hpp"
#include "support/fixtures/cuda_segments_here.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/cuda_peer_protocol.hpp"

#include <cstdio>
#include <cstring>
#include <map>

namespace {

using namespace pinfold;
using namespace pinfold::testing;
using cuda::status;

/// How to free the memory at an address.
struct block {
  cuda_order::verb kind;
  std::size_t bytes;  ///< of one segment
  std::uint32_t count = 1;
};

class shop {
 public:
  explicit shop(bool events) : exporter_(cuda_ipc_exporter::create({.events = events}).value()) {}

  cuda_answer obey(const cuda_order& order) {
    switch (order.what) {
      case cuda_order::verb::allocate:
      case cuda_order::verb::map_segments:
      case cuda_order::verb::allocate_pooled:
      case cuda_order::verb::allocate_private:
      case cuda_order::verb::allocate_managed: return share_new(order);
      case cuda_order::verb::replace_segment: replace(order); return {.done = true};
      case cuda_order::verb::unmap_segment:
        gpu().demand([&] { return gpu().calls().mem_unmap(order.address, order.bytes); });
        return {.done = true};
      case cuda_order::verb::map_segment:
        gpu().demand([&] { return map_segment(order.address, order.bytes); });
        gpu().write(order.address, order.bytes, order.seed);
        return {.done = true};
      case cuda_order::verb::share_segments: return share_segments(order);
      case cuda_order::verb::free: free(order.address); return {.done = true};
      case cuda_order::verb::write: gpu().write(order.address, order.bytes, order.seed); return {.done = true};
      case cuda_order::verb::write_later: return write_later(order);
      case cuda_order::verb::check: return {.done = gpu().holds(order.address, order.bytes, order.seed)};
      case cuda_order::verb::share: return share(order.address, order.at_least);
      case cuda_order::verb::record: return said(exporter_.record(last_));
      case cuda_order::verb::reset_device:
        return {.done = gpu().calls().device_primary_ctx_reset(0) == status::success};
    }
    return {};
  }

 private:
  static cuda_answer said(const result<void>& outcome) {
    return outcome ? cuda_answer{.done = true} : cuda_answer{.failure = outcome.error()};
  }

  cuda_answer share(std::uint64_t address, std::size_t at_least) {
    const auto got = exporter_.share(address, at_least);
    if (!got) return {.failure = got.error(), .address = address};
    last_ = *got;
    return {.done = true, .address = address, .shared = *got};
  }

  cuda_answer share_segments(const cuda_order& order) {
    const auto got = exporter_.share_segments(order.address, order.bytes);
    if (!got) return {.failure = got.error(), .address = order.address};
    return {.done = true, .address = got->size(), .shared = got->at(order.count)};
  }

  cuda_answer share_new(const cuda_order& order) {
    const auto at = allocate(order);
    blocks_[at] = {order.what, order.bytes, order.count};
    gpu().write(at, order.bytes * order.count, order.seed);
    return share(at, order.bytes * order.count);
  }

  std::uint64_t allocate(const cuda_order& order) {
    const auto& cu = gpu().calls();
    cuda::device_pointer at = 0;
    gpu().demand([&] {
      switch (order.what) {
        case cuda_order::verb::allocate_pooled: return cu.mem_alloc_from_pool_async(&at, order.bytes, pool(), nullptr);
        case cuda_order::verb::allocate_private: return cu.mem_alloc_async(&at, order.bytes, nullptr);
        case cuda_order::verb::allocate_managed: return cu.mem_alloc_managed(&at, order.bytes, cuda::attach_global);
        case cuda_order::verb::map_segments: return map(at, order.bytes, order.count);
        default: return cu.mem_alloc(&at, order.bytes);
      }
    });
    return at;
  }

  static status map(cuda::device_pointer& at, std::size_t bytes, std::uint32_t count) {
    if (const auto got = gpu().calls().mem_address_reserve(&at, bytes * count, 0, 0, 0); got != status::success)
      return got;
    for (std::uint32_t i = 0; i < count; ++i)
      if (const auto got = map_segment(at + i * bytes, bytes); got != status::success) return got;
    return status::success;
  }

  static void replace(const cuda_order& order) {
    gpu().demand([&] {
      const auto gone = gpu().calls().mem_unmap(order.address, order.bytes);
      return gone == status::success ? map_segment(order.address, order.bytes) : gone;
    });
    gpu().write(order.address, order.bytes, order.seed);
  }

  void free(std::uint64_t address) {
    const auto& cu = gpu().calls();
    const block gone = blocks_.at(address);
    blocks_.erase(address);
    gpu().demand([&] {
      if (gone.kind != cuda_order::verb::map_segments) return cu.mem_free(address);
      for (std::uint32_t i = 0; i < gone.count; ++i)
        if (const auto got = cu.mem_unmap(address + i * gone.bytes, gone.bytes); got != status::success) return got;
      return cu.mem_address_free(address, gone.bytes * gone.count);
    });
  }

  cuda_answer write_later(const cuda_order& order) {
    const auto& cu = gpu().calls();
    if (staged_ != 0) gpu().demand([&] { return cu.mem_free(staged_); });  // the free waits for the copy
    gpu().demand([&] { return cu.mem_alloc(&staged_, order.bytes); });
    gpu().write(staged_, order.bytes, order.seed);
    if (!real_gpu()) emulation().stream_delay(20'000);
    gpu().demand([&] { return cu.memcpy_async(order.address, staged_, order.bytes, nullptr); });
    return said(exporter_.record(last_));
  }

  cuda::memory_pool pool() {
    if (pool_ != nullptr) return pool_;
    cuda::pool_properties wanted{};
    wanted.type = cuda::allocation_type::pinned;
    wanted.handle_types = cuda::allocation_handle_type::posix_file_descriptor;
    wanted.where = {cuda::location_type::on_device, 0};
    gpu().demand([&] { return gpu().calls().mem_pool_create(&pool_, &wanted); });
    return pool_;
  }

  cuda_ipc_exporter exporter_;
  cuda_shared last_{};
  cuda::memory_pool pool_ = nullptr;
  cuda::device_pointer staged_ = 0;
  std::map<std::uint64_t, block> blocks_;
};

cuda_answer tried(shop& all, const cuda_order& order) try { return all.obey(order); } catch (const std::exception&) {
  return {.failure = {.code = errc::driver_error}};
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 3) return 2;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  line parent(std::atoi(arguments[1]));
  static_cast<void>(gpu());
  shop all(std::strcmp(arguments[2], "events") == 0);
  while (const auto order = parent.receive<cuda_order>()) {
    if (!parent.send(tried(all, *order))) return 3;
  }
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "cuda_peer: %s\n", failure.what());
  return 4;
}
