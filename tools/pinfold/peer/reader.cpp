// SPDX-License-Identifier: BSD-3-Clause
#include "peer/reader.hpp"

#include <cstring>

namespace tool {

pinfold::result<void> cached_reader::read(const message& wanted, std::byte* into) {
  auto lease = cache_->acquire(wanted.peer, wanted.handle, wanted.handle.base, wanted.size);
  if (!lease) return tl::unexpected(lease.error());
  std::memcpy(into, lease->data(), wanted.size);
  return lease->release();
}

pinfold::result<void> uncached_reader::read(const message& wanted, std::byte* into) {
  const auto opened = importer_.open(wanted.peer, wanted.handle);
  if (!opened) return tl::unexpected(opened.error());
  std::memcpy(into, opened->data, wanted.size);
  return importer_.close(opened->registration);
}

pinfold::result<void> floor_reader::read(const message& wanted, std::byte* into) {
  auto found = held_.find(wanted.seed);
  if (found == held_.end()) {
    const auto opened = importer_.open(wanted.peer, wanted.handle);
    if (!opened) return tl::unexpected(opened.error());
    found = held_.emplace(wanted.seed, *opened).first;
  }
  std::memcpy(into, found->second.data, wanted.size);
  return {};
}

floor_reader::~floor_reader() {
  for (const auto& [seed, opened] : held_) static_cast<void>(importer_.close(opened.registration));
}

}  // namespace tool
