// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/exporter_mappings.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

namespace pinfold::fd_passing {

result<exporter_mappings::room> exporter_mappings::make_room(const exporter_id& from, peer_id peer,
                                                             const range& where) noexcept try {
  map made;
  made.emplace(0, mapping{from, peer, where});
  return made.extract(made.begin());
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

void exporter_mappings::add(std::uint64_t key, room in) noexcept {
  in.key() = key;
  const std::scoped_lock guard(mutex_);
  all_.insert(std::move(in));
}

void exporter_mappings::remove(std::uint64_t key) noexcept {
  const std::scoped_lock guard(mutex_);
  all_.erase(key);
}

void exporter_mappings::tell(call to) {
  auto made = std::make_shared<const call>(std::move(to));
  const std::scoped_lock guard(mutex_);
  tell_.swap(made);
}

// What it calls closes, and so removes, mappings.
void exporter_mappings::ended(const exporter_id& exporter) noexcept {
  for (std::uint64_t last = 0;;) {
    mapping one;
    std::shared_ptr<const call> told;
    {
      const std::scoped_lock guard(mutex_);
      const auto next = std::find_if(all_.upper_bound(last), all_.end(),
                                     [&](const auto& each) { return each.second.from == exporter; });
      if (next == all_.end() || !tell_) return;
      last = next->first;
      one = next->second;
      told = tell_;
    }
    (*told)(one.peer, one.where);
  }
}

}  // namespace pinfold::fd_passing
