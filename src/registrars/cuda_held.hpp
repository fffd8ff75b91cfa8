// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Things of the driver that this process has, counted: one table for all caches, as the driver has one, too.
#pragma once

#include <pinfold/error.hpp>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace pinfold::cuda {

/// Each item is opened once, and closed when its last hold is given back. Thread-safe: the driver is called without the
/// lock, and who needs an item that another thread is opening or closing waits for that alone.
template <class Key, class Item>
class held_table {
 public:
  struct entry {
    Item item{};
    std::size_t holds = 0;
    bool busy = true;  ///< a thread is opening or closing it
  };
  using entries = std::map<Key, entry>;
  using place = typename entries::iterator;

  /// The number of a new hold of `owner`, which no other hold ever has.
  ///
  /// `find(entries&)` gives the place of what is in the way of a new item, or the end. `fits(place)`, asked when that
  /// is open, gives an error, or leave to share it. `open()` gives a new item. `use(place)` sees the item.
  template <class Find, class Fits, class Open, class Use>
  [[nodiscard]] result<std::uint64_t> take(const void* owner, const Key& key, Find&& find, Fits&& fits, Open&& open,
                                           Use&& use) noexcept try {
    entries made;  // allocated before anything can be half done
    const place fresh = made.try_emplace(key).first;
    std::unique_lock guard(mutex_);
    for (place there = find(entries_); there != entries_.end(); there = find(entries_)) {
      if (there->second.busy) {
        settled_.wait(guard);  // it may be gone afterwards
        continue;
      }
      if (auto fit = fits(there); !fit) return tl::unexpected(fit.error());
      const auto number = note(owner, there);
      use(there);
      return number;
    }
    const auto number = note(owner, fresh);
    entries_.merge(made);
    guard.unlock();
    auto opened = open();
    guard.lock();
    settled_.notify_all();
    if (!opened) {
      holders_.erase(number);
      entries_.erase(fresh);
      return tl::unexpected(opened.error());
    }
    fresh->second.item = std::move(*opened);
    fresh->second.busy = false;
    use(fresh);
    return number;
  } catch (const std::bad_alloc&) {
    return fail_errno(errc::out_of_resources, ENOMEM, "no memory for pinfold's own records");
  }

  /// Gives one hold back; the last calls `close(const Key&, Item&)`. `invalid_argument` when this number is not held.
  /// After a failed close all is as before.
  template <class Close>
  [[nodiscard]] result<void> give_back(std::uint64_t number, Close&& close) noexcept {
    std::unique_lock guard(mutex_);
    const auto found = holders_.find(number);
    if (found == holders_.end() || found->second.of->second.busy)
      return fail(errc::invalid_argument, "this is not open");
    const place there = found->second.of;
    if (there->second.holds > 1) {
      --there->second.holds;
      holders_.erase(found);
      return {};
    }
    there->second.busy = true;
    guard.unlock();
    auto closed = close(there->first, there->second.item);
    guard.lock();
    settled_.notify_all();
    there->second.busy = false;
    if (!closed) return closed;
    holders_.erase(number);
    entries_.erase(there);
    return {};
  }

  /// Gives back all that `owner` has. What the driver refuses to close stays open, and is nobody's.
  template <class Close>
  void give_back_all(const void* owner, Close&& close) noexcept {
    while (const auto number = any_of(owner))
      if (!give_back(number, close)) disown(number);
  }

  [[nodiscard]] std::size_t held_by(const void* owner) const noexcept {
    const std::scoped_lock guard(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count(holders_, owner, [](const auto& one) { return one.second.owner; }));
  }

 private:
  struct holder {
    const void* owner;
    place of;
  };

  [[nodiscard]] std::uint64_t note(const void* owner, place of) {
    holders_.emplace(last_number_ + 1, holder{owner, of});
    ++of->second.holds;
    return ++last_number_;
  }

  [[nodiscard]] std::uint64_t any_of(const void* owner) const noexcept {
    const std::scoped_lock guard(mutex_);
    const auto found = std::ranges::find(holders_, owner, [](const auto& one) { return one.second.owner; });
    return found == holders_.end() ? 0 : found->first;
  }

  void disown(std::uint64_t number) noexcept {
    const std::scoped_lock guard(mutex_);
    if (const auto found = holders_.find(number); found != holders_.end()) found->second.owner = nullptr;
  }

  mutable std::mutex mutex_;
  std::condition_variable settled_;
  entries entries_;
  std::map<std::uint64_t, holder> holders_;
  std::uint64_t last_number_ = 0;
};

}  // namespace pinfold::cuda
