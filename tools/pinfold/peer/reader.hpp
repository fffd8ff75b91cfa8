// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ways to read a peer's message that the tool compares.
#pragma once

#include "peer/message.hpp"

#include <pinfold/error.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tool {

using memfd_cache = pinfold::import_cache<pinfold::memfd_importer>;

/// One way to copy a message to this process. One object serves one thread.
class reader {
 public:
  virtual ~reader() = default;

  /// Copies the whole message to `into`, which has room for it.
  [[nodiscard]] virtual pinfold::result<void> read(const message& wanted, std::byte* into) = 0;
};

/// Through a cache, which several readers may share: acquire, copy, release.
class cached_reader : public reader {
 public:
  explicit cached_reader(memfd_cache& cache) noexcept : cache_(&cache) {}
  pinfold::result<void> read(const message& wanted, std::byte* into) override;

 private:
  memfd_cache* cache_;
};

/// Without a cache: open, copy, close.
class uncached_reader : public reader {
 public:
  explicit uncached_reader(pinfold::memfd_importer importer) noexcept : importer_(std::move(importer)) {}
  pinfold::result<void> read(const message& wanted, std::byte* into) override;

 private:
  pinfold::memfd_importer importer_;
};

/// From a mapping that is opened at the first read and held until the end: the copy alone, as fast as it can be.
class floor_reader : public reader {
 public:
  explicit floor_reader(pinfold::memfd_importer importer) noexcept : importer_(std::move(importer)) {}
  ~floor_reader() override;
  floor_reader(const floor_reader&) = delete;
  floor_reader& operator=(const floor_reader&) = delete;
  pinfold::result<void> read(const message& wanted, std::byte* into) override;

 private:
  using imported = pinfold::imported<pinfold::memfd_importer::registration_type>;
  pinfold::memfd_importer importer_;
  std::map<std::uint64_t, imported> held_;  // by the message's seed
};

}  // namespace tool
