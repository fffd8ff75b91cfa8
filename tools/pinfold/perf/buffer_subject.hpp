// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ways to register a buffer for an I/O that the tool compares.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/cache.hpp>
#include <pinfold/error.hpp>
#include <pinfold/pools/options.hpp>
#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tool {

/// One of these ways, with its buffers. For one thread.
template <class Registrar>
class buffer_subject {
 public:
  using registration = typename Registrar::registration_type;
  using cache = pinfold::cache<Registrar>;

  buffer_subject() = default;
  buffer_subject(const buffer_subject&) = delete;
  buffer_subject& operator=(const buffer_subject&) = delete;
  virtual ~buffer_subject() = default;

  [[nodiscard]] virtual std::span<std::byte> buffer(std::size_t number) noexcept = 0;

  /// Runs before the buffer's use, which is `access`. Returns no registration where the buffer is not registered.
  [[nodiscard]] virtual pinfold::result<std::optional<registration>> begin(std::size_t number,
                                                                           pinfold::access_flags access) noexcept = 0;

  /// Runs after the buffer's use.
  [[nodiscard]] virtual pinfold::result<void> end(std::size_t number) noexcept = 0;
};

/// Buffers side by side in one piece of ordinary memory, not registered.
template <class Registrar, class Memory>
class unregistered_buffers : public buffer_subject<Registrar> {
 public:
  unregistered_buffers(Memory memory, std::size_t size) : memory_(std::move(memory)), size_(size) {}
  std::span<std::byte> buffer(std::size_t number) noexcept override {
    return memory_.bytes().subspan(number * size_, size_);
  }
  pinfold::result<std::optional<typename Registrar::registration_type>> begin(std::size_t,
                                                                              pinfold::access_flags) noexcept override {
    return std::nullopt;
  }
  pinfold::result<void> end(std::size_t) noexcept override { return {}; }

 protected:
  [[nodiscard]] std::size_t count() const noexcept { return memory_.bytes().size() / size_; }

 private:
  Memory memory_;
  std::size_t size_;
};

/// Registers for each use and unregisters after it, like a program without a cache.
template <class Registrar, class Memory>
class buffers_registered_each_time : public unregistered_buffers<Registrar, Memory> {
 public:
  using registration = typename Registrar::registration_type;

  buffers_registered_each_time(Memory memory, std::size_t size, Registrar registrar)
      : unregistered_buffers<Registrar, Memory>(std::move(memory), size),
        registrar_(std::move(registrar)),
        made_(this->count()) {}
  pinfold::result<std::optional<registration>> begin(std::size_t number,
                                                     pinfold::access_flags access) noexcept override {
    const auto where = this->buffer(number);
    const auto first = reinterpret_cast<std::uintptr_t>(where.data());
    return registrar_.open({first, first + where.size()}, access).map([&](const registration& made) {
      return std::optional(made_[number] = made);
    });
  }
  pinfold::result<void> end(std::size_t number) noexcept override { return registrar_.close(made_[number]); }

 private:
  Registrar registrar_;
  std::vector<registration> made_;
};

/// Looks the buffer up in the cache for each use.
template <class Registrar, class Memory>
class cached_buffers : public unregistered_buffers<Registrar, Memory> {
 public:
  using registration = typename Registrar::registration_type;
  using cache = pinfold::cache<Registrar>;

  cached_buffers(Memory memory, std::size_t size, cache used)
      : unregistered_buffers<Registrar, Memory>(std::move(memory), size),
        cache_(std::move(used)),
        held_(this->count()) {}
  pinfold::result<std::optional<registration>> begin(std::size_t number,
                                                     pinfold::access_flags access) noexcept override {
    auto lease = cache_.acquire(this->buffer(number), access);
    if (!lease) return tl::unexpected(lease.error());
    held_[number] = std::move(*lease);
    return held_[number].registration();
  }
  pinfold::result<void> end(std::size_t number) noexcept override { return held_[number].release(); }

 private:
  cache cache_;
  std::vector<typename cache::lease> held_;  // released before the cache ends
};

/// The buffers were registered before they were allocated, so there is nothing to look up. Only the pool may unmap
/// them.
template <class Registrar>
class pooled_buffers : public buffer_subject<Registrar> {
 public:
  using registration = typename Registrar::registration_type;
  using cache = pinfold::cache<Registrar>;

  pooled_buffers(cache used, pinfold::page_kind pages) : cache_(std::move(used)), pool_(cache_, {.pages = pages}) {}
  ~pooled_buffers() override {
    for (const auto& one : buffers_) static_cast<void>(pool_.try_deallocate(one.data, size_));
  }

  [[nodiscard]] pinfold::result<void> allocate(std::size_t count, std::size_t size, std::size_t alignment) {
    size_ = size;
    while (buffers_.size() < count) {
      const auto got = pool_.allocate_registered(size, alignment);
      if (!got) return tl::unexpected(got.error());
      buffers_.push_back(*got);
    }
    return {};
  }

  std::span<std::byte> buffer(std::size_t number) noexcept override {
    return {static_cast<std::byte*>(buffers_[number].data), size_};
  }
  pinfold::result<std::optional<registration>> begin(std::size_t number, pinfold::access_flags) noexcept override {
    return buffers_[number].registration;
  }
  pinfold::result<void> end(std::size_t) noexcept override { return {}; }

 private:
  using pool = pinfold::registered_pool<Registrar>;
  cache cache_;
  pool pool_;
  std::vector<typename pool::registered_memory> buffers_;
  std::size_t size_ = 0;
};

}  // namespace tool
