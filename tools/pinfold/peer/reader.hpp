// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ways to read a peer's message that the tool compares, for memory of the host and of devices alike.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/importer.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace tool {

/// A part of a message.
template <class Message>
struct part_of {
  const Message& of;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// Returns the part that is the whole message.
template <class Message>
[[nodiscard]] part_of<Message> whole(const Message& of) noexcept {
  return {of, 0, of.size};
}

/// One way to copy messages to a target. One object serves one thread.
template <class Message, class Target>
class reader {
 public:
  reader() = default;
  reader(const reader&) = delete;
  reader& operator=(const reader&) = delete;
  virtual ~reader() = default;

  /// Copies the part to the target's beginning.
  [[nodiscard]] virtual pinfold::result<void> read(const part_of<Message>& wanted, Target& into) = 0;

  /// Returns how often the reader asked a driver to open something.
  [[nodiscard]] virtual std::uint64_t opens() const = 0;
};

/// Through a cache, which several readers may share: acquire, copy, release.
template <class Message, class Target, class Cache>
class cached_reader : public reader<Message, Target> {
 public:
  explicit cached_reader(Cache& cache) noexcept : cache_(cache) {}

  pinfold::result<void> read(const part_of<Message>& wanted, Target& into) override {
    const auto& handle = wanted.of.handle;
    auto lease = cache_.acquire(wanted.of.peer, handle, handle.base + wanted.offset, wanted.bytes);
    if (!lease) return tl::unexpected(lease.error());
    const auto copied = into.take(lease->data(), wanted.bytes);
    return copied ? lease->release() : copied;
  }
  [[nodiscard]] std::uint64_t opens() const override { return cache_.statistics().opens; }

 private:
  Cache& cache_;
};

/// Without a cache: open, copy, close.
template <class Message, class Target, class Importer>
class uncached_reader : public reader<Message, Target> {
 public:
  explicit uncached_reader(Importer importer) noexcept : importer_(std::move(importer)) {}

  pinfold::result<void> read(const part_of<Message>& wanted, Target& into) override {
    const auto opened = importer_.open(wanted.of.peer, wanted.of.handle);
    if (!opened) return tl::unexpected(opened.error());
    ++opens_;
    const auto copied = into.take(static_cast<const std::byte*>(opened->data) + wanted.offset, wanted.bytes);
    const auto closed = importer_.close(opened->registration);
    return copied ? closed : copied;
  }
  [[nodiscard]] std::uint64_t opens() const override { return opens_; }

 private:
  Importer importer_;
  std::uint64_t opens_ = 0;
};

/// From a mapping that is opened at the first read and held until the end: the copy alone, as fast as it can be.
template <class Message, class Target, class Importer>
class floor_reader : public reader<Message, Target> {
 public:
  explicit floor_reader(Importer importer) noexcept : importer_(std::move(importer)) {}
  ~floor_reader() override {
    for (const auto& [seed, opened] : held_) static_cast<void>(importer_.close(opened.registration));
  }

  pinfold::result<void> read(const part_of<Message>& wanted, Target& into) override {
    auto found = held_.find(wanted.of.seed);
    if (found == held_.end()) {
      const auto opened = importer_.open(wanted.of.peer, wanted.of.handle);
      if (!opened) return tl::unexpected(opened.error());
      found = held_.emplace(wanted.of.seed, *opened).first;
    }
    return into.take(static_cast<const std::byte*>(found->second.data) + wanted.offset, wanted.bytes);
  }
  [[nodiscard]] std::uint64_t opens() const override { return held_.size(); }

 private:
  Importer importer_;
  std::map<std::uint64_t, pinfold::imported<typename Importer::registration_type>> held_;  // by the message's seed
};

/// Makes the reader with that name: `pinfold` goes through the cache, which must outlive it; `floor` and `uncached` use
/// an importer from `make_importer` each, since one importer refuses to open a handle twice.
template <class Message, class Target, class Cache, class MakeImporter>
[[nodiscard]] std::unique_ptr<reader<Message, Target>> make_reader(std::string_view name, Cache& cache,
                                                                   MakeImporter make_importer) {
  using importer = decltype(make_importer());
  if (name == "pinfold") return std::make_unique<cached_reader<Message, Target, Cache>>(cache);
  if (name == "floor") return std::make_unique<floor_reader<Message, Target, importer>>(make_importer());
  return std::make_unique<uncached_reader<Message, Target, importer>>(make_importer());
}

}  // namespace tool
