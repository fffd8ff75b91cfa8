// SPDX-License-Identifier: BSD-3-Clause
#include "perf/local/io_subject.hpp"

#include <pinfold/pools/registered_pool.hpp>

#include <utility>
#include <vector>

namespace tool {
namespace {

using index_result = pinfold::result<std::optional<std::uint32_t>>;
using registration = pinfold::io_uring_registrar::registration_type;

constexpr std::size_t alignment = 4096;  // O_DIRECT needs this

// Buffers side by side in one piece of ordinary memory.
class side_by_side : public io_subject {
 public:
  side_by_side(paged_memory memory, std::size_t size) : memory_(std::move(memory)), size_(size) {}
  std::span<std::byte> buffer(std::size_t number) noexcept override {
    return memory_.bytes().subspan(number * size_, size_);
  }

 private:
  paged_memory memory_;
  std::size_t size_;
};

// The kernel pins the pages for each I/O.
class unregistered : public side_by_side {
 public:
  using side_by_side::side_by_side;
  index_result begin(std::size_t) noexcept override { return std::nullopt; }
  pinfold::result<void> end(std::size_t) noexcept override { return {}; }
};

// Registers for each I/O and unregisters after it, like a program without a cache.
class per_io : public side_by_side {
 public:
  per_io(paged_memory memory, const io_buffers& buffers, pinfold::io_uring_registrar registrar)
      : side_by_side(std::move(memory), buffers.size), registrar_(std::move(registrar)), made_(buffers.count) {}
  index_result begin(std::size_t number) noexcept override {
    const auto where = buffer(number);
    const auto first = reinterpret_cast<std::uintptr_t>(where.data());
    auto made = registrar_.open({first, first + where.size()}, pinfold::local_access);
    if (!made) return tl::unexpected(made.error());
    made_[number] = *made;
    return made->index;
  }
  pinfold::result<void> end(std::size_t number) noexcept override { return registrar_.close(made_[number]); }

 private:
  pinfold::io_uring_registrar registrar_;
  std::vector<registration> made_;
};

// Looks the buffer up in the cache for each I/O.
class cached : public side_by_side {
 public:
  cached(paged_memory memory, const io_buffers& buffers, uring_cache cache)
      : side_by_side(std::move(memory), buffers.size), cache_(std::move(cache)), held_(buffers.count) {}
  index_result begin(std::size_t number) noexcept override {
    auto lease = cache_.acquire(buffer(number));
    if (!lease) return tl::unexpected(lease.error());
    held_[number] = std::move(*lease);
    return held_[number].registration().index;
  }
  pinfold::result<void> end(std::size_t number) noexcept override { return held_[number].release(); }

 private:
  uring_cache cache_;
  std::vector<uring_cache::lease> held_;  // released before the cache ends
};

// The buffers were registered before they were allocated, so there is nothing to look up.
class pooled : public io_subject {
 public:
  pooled(uring_cache cache, pinfold::page_kind pages) : cache_(std::move(cache)), pool_(cache_, {.pages = pages}) {}
  ~pooled() override {
    for (const auto& one : buffers_) static_cast<void>(pool_.try_deallocate(one.data, size_));
  }

  pinfold::result<void> allocate(const io_buffers& buffers) {
    size_ = buffers.size;
    while (buffers_.size() < buffers.count) {
      const auto got = pool_.allocate_registered(size_, alignment);
      if (!got) return tl::unexpected(got.error());
      buffers_.push_back(*got);
    }
    return {};
  }

  std::span<std::byte> buffer(std::size_t number) noexcept override {
    return {static_cast<std::byte*>(buffers_[number].data), size_};
  }
  index_result begin(std::size_t number) noexcept override { return buffers_[number].registration.index; }
  pinfold::result<void> end(std::size_t) noexcept override { return {}; }

 private:
  using pool = pinfold::registered_pool<pinfold::io_uring_registrar>;
  uring_cache cache_;
  pool pool_;
  std::vector<pool::registered_memory> buffers_;
  std::size_t size_ = 0;
};

pinfold::result<std::unique_ptr<io_subject>> make_pooled(uring& ring, const io_buffers& buffers) {
  auto made = std::make_unique<pooled>(ring.cache(buffers.cache), buffers.pages);
  if (auto done = made->allocate(buffers); !done) return tl::unexpected(done.error());
  return made;
}

}  // namespace

pinfold::result<std::unique_ptr<io_subject>> make_io_subject(std::string_view name, uring& ring,
                                                             const io_buffers& buffers) {
  if (name == "pool") return make_pooled(ring, buffers);
  auto memory = paged_memory::map(buffers.count * buffers.size, buffers.pages);
  if (!memory) return tl::unexpected(memory.error());
  if (name == "unregistered") return std::make_unique<unregistered>(std::move(*memory), buffers.size);
  if (name == "pinfold") return std::make_unique<cached>(std::move(*memory), buffers, ring.cache(buffers.cache));
  return ring.registrar().map([&](auto registrar) -> std::unique_ptr<io_subject> {
    return std::make_unique<per_io>(std::move(*memory), buffers, std::move(registrar));
  });
}

}  // namespace tool
