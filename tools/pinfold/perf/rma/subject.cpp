// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/subject.hpp"

#include "cli/failure.hpp"
#include "perf/rma/memory.hpp"

#include <pinfold/pools/registered_pool.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace tool {
namespace {

using registration = pinfold::libfabric_registrar::registration_type;

// Buffers side by side in one piece of ordinary memory.
class side_by_side : public rma_subject {
 public:
  explicit side_by_side(const rma_buffers& buffers) : memory_(buffers.count * buffers.size), size_(buffers.size) {}
  std::span<std::byte> buffer(std::size_t number) noexcept override {
    return memory_.bytes().subspan(number * size_, size_);
  }
  void remap() override { memory_.remap(); }

 private:
  rma_memory memory_;
  std::size_t size_;
};

// Registers for each transfer and closes after it, like a program without a cache.
class per_transfer : public side_by_side {
 public:
  per_transfer(const rma_buffers& buffers, pinfold::libfabric_registrar registrar)
      : side_by_side(buffers), registrar_(std::move(registrar)), made_(buffers.count) {}
  pinfold::result<void*> begin(std::size_t number, pinfold::access_flags access) noexcept override {
    const auto where = buffer(number);
    const auto first = reinterpret_cast<std::uintptr_t>(where.data());
    auto made = registrar_.open({first, first + where.size()}, access);
    if (!made) return tl::unexpected(made.error());
    made_[number] = *made;
    return made->desc;
  }
  pinfold::result<void> end(std::size_t number) noexcept override { return registrar_.close(made_[number]); }

 private:
  pinfold::libfabric_registrar registrar_;
  std::vector<registration> made_;
};

// Looks the buffer up in the cache for each transfer.
class cached : public side_by_side {
 public:
  cached(const rma_buffers& buffers, fabric_cache cache)
      : side_by_side(buffers), cache_(std::move(cache)), held_(buffers.count) {}
  pinfold::result<void*> begin(std::size_t number, pinfold::access_flags access) noexcept override {
    auto lease = cache_.acquire(buffer(number), access);
    if (!lease) return tl::unexpected(lease.error());
    held_[number] = std::move(*lease);
    return held_[number].registration().desc;
  }
  pinfold::result<void> end(std::size_t number) noexcept override { return held_[number].release(); }
  [[nodiscard]] std::string monitors() const override { return cache_.monitors(); }

 private:
  fabric_cache cache_;
  std::vector<fabric_cache::lease> held_;  // released before the cache ends
};

// The buffers were registered before they were allocated, so there is nothing to look up. Only the pool may unmap them.
class pooled : public rma_subject {
 public:
  pooled(const rma_buffers& buffers, fabric_cache cache)
      : cache_(std::move(cache)), pool_(cache_, {.pages = pinfold::page_kind::plain}), size_(buffers.size) {
    while (buffers_.size() < buffers.count)
      buffers_.push_back(need(pool_.allocate_registered(size_, alignment), "the pool"));
  }
  ~pooled() override {
    for (const auto& one : buffers_) static_cast<void>(pool_.try_deallocate(one.data, size_));
  }

  std::span<std::byte> buffer(std::size_t number) noexcept override {
    return {static_cast<std::byte*>(buffers_[number].data), size_};
  }
  pinfold::result<void*> begin(std::size_t number, pinfold::access_flags) noexcept override {
    return buffers_[number].registration.desc;
  }
  pinfold::result<void> end(std::size_t) noexcept override { return {}; }

 private:
  static constexpr std::size_t alignment = 64;
  using pool = pinfold::registered_pool<pinfold::libfabric_registrar>;
  fabric_cache cache_;
  pool pool_;
  std::vector<pool::registered_memory> buffers_;
  std::size_t size_;
};

}  // namespace

std::unique_ptr<rma_subject> make_rma_subject(const std::string& name, const fabric_end& end,
                                              const rma_buffers& buffers, const pinfold::cache_options& cache) {
  if (name == "per-transfer") return std::make_unique<per_transfer>(buffers, end.registrar());
  fabric_cache own(end.registrar(), cache);
  if (name == "pool") return std::make_unique<pooled>(buffers, std::move(own));
  return std::make_unique<cached>(buffers, std::move(own));
}

}  // namespace tool
