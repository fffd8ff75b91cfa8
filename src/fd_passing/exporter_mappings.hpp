// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The mappings of one importer by their exporter, to notify a cache of those whose exporter has ended.
#pragma once

#include "fd_passing/connection.hpp"
#include "os/no_fork.hpp"

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace pinfold::fd_passing {

/// A mapping is listed from before its open until after its close: its exporter may end at any moment. Thread-safe.
/// Makes no call with its lock held.
template <class Handle>
class exporter_mappings {
 public:
  using call = std::function<void(peer_id peer, range where, const Handle& handle)>;

  /// Lists a mapping that is about to be opened, and returns its number, never 0. Error: `out_of_resources`.
  [[nodiscard]] result<std::uint64_t> begin(const exporter_id& from, peer_id peer, const range& where,
                                            const Handle& handle) noexcept try {
    map made;
    made.emplace(0, mapping{from, peer, where, handle});
    names name;
    name.emplace(0, 0);
    auto node = made.extract(made.begin());
    counts count;
    count.emplace(from, 0);
    const std::scoped_lock guard(mutex_);
    counts_.merge(count);
    ++counts_.find(from)->second;
    node.mapped().unused = name.extract(name.begin());
    node.key() = ++last_;
    all_.insert(std::move(node));
    return last_;
  } catch (const std::bad_alloc&) {
    return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
  }

  /// Removes a mapping whose open failed, or whose close is done.
  void end(std::uint64_t number) noexcept {
    typename map::node_type ended;  // freed without the lock
    counts::node_type last;
    const std::scoped_lock guard(mutex_);
    ended = all_.extract(number);
    if (ended.empty()) return;
    const auto of = counts_.find(ended.mapped().from);
    if (--of->second == 0) last = counts_.extract(of);
  }

  /// Returns whether a mapping of the exporter is listed.
  [[nodiscard]] bool contains(const exporter_id& exporter) noexcept {
    const std::scoped_lock guard(mutex_);
    return counts_.contains(exporter);
  }

  /// Marks a mapping as open: `take_number` finds it by `name`, which no other open mapping has.
  void opened(std::uint64_t number, std::uint64_t name) noexcept {
    const std::scoped_lock guard(mutex_);
    const auto found = all_.find(number);
    if (found == all_.end() || found->second.unused.empty()) return;
    found->second.unused.key() = name;
    found->second.unused.mapped() = number;
    by_name_.insert(std::move(found->second.unused));
  }

  /// Called before a mapping is closed: returns its number, 0 if there is none. If the close fails, call `opened`.
  [[nodiscard]] std::uint64_t take_number(std::uint64_t name) noexcept {
    const std::scoped_lock guard(mutex_);
    auto taken = by_name_.extract(name);
    if (taken.empty()) return 0;
    const auto number = taken.mapped();
    if (const auto found = all_.find(number); found != all_.end()) found->second.unused = std::move(taken);
    return number;
  }

  /// Calls `to` from now on. Throws `std::bad_alloc`.
  void tell(call to) {
    auto made = std::make_shared<const call>(std::move(to));
    const std::scoped_lock guard(mutex_);
    tell_.swap(made);
  }

  /// Reports each mapping of the exporter. The callback closes, and so removes, mappings.
  void ended(const exporter_id& exporter) noexcept {
    for (std::uint64_t last = 0;;) {
      peer_id peer{};
      range where{};
      Handle handle;
      std::shared_ptr<const call> notified;
      {
        const os::no_fork no_child_has_it_locked;
        const std::scoped_lock guard(mutex_);
        const auto next = std::find_if(all_.upper_bound(last), all_.end(),
                                       [&](const auto& each) { return each.second.from == exporter; });
        if (next == all_.end() || !tell_) return;
        last = next->first;
        peer = next->second.peer;
        where = next->second.where;
        handle = next->second.handle;
        notified = tell_;
      }
      (*notified)(peer, where, handle);
    }
  }

 private:
  using names = std::map<std::uint64_t, std::uint64_t>;
  using counts = std::map<exporter_id, std::size_t>;
  struct mapping {
    exporter_id from;
    peer_id peer;
    range where;
    Handle handle;
    names::node_type unused{};  ///< for the name, while it has none
  };
  using map = std::map<std::uint64_t, mapping>;

  std::mutex mutex_;
  map all_;  ///< by number
  names by_name_;
  counts counts_;  ///< mappings of each exporter, never 0
  std::uint64_t last_ = 0;
  std::shared_ptr<const call> tell_;
};

/// Ends the table's thread with the last owner: the thread owns the table while it forgets links, and would otherwise
/// still be in this library when the program unloads it.
struct table_owner {
  explicit table_owner(std::shared_ptr<connection_table> owned) noexcept : table(std::move(owned)) {}
  table_owner(const table_owner&) = delete;
  table_owner& operator=(const table_owner&) = delete;
  ~table_owner() { table->end(); }
  const std::shared_ptr<connection_table> table;
};

/// Returns a table that calls `mappings->ended`, and keeps the links of exporters with mappings.
template <class Handle>
[[nodiscard]] std::shared_ptr<connection_table> links_that_tell(
    const std::shared_ptr<exporter_mappings<Handle>>& mappings) {
  auto table =
      std::make_shared<connection_table>([=](const exporter_id& exporter) { mappings->ended(exporter); },
                                         [=](const exporter_id& exporter) { return mappings->contains(exporter); });
  const auto owner = std::make_shared<table_owner>(table);
  return {owner, table.get()};
}

}  // namespace pinfold::fd_passing
