// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Counts the holds on driver objects of this process: one table for all caches, because the driver has one, too.
#pragma once

#include <pinfold/error.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace pinfold::cuda {

/// Opens each item once, and closes it when its last hold is given back. Thread-safe: the table calls the driver
/// without the lock, and a thread that needs an item that another thread is opening or closing waits for that item
/// only.
template <class Key, class Item>
class open_table {
 public:
  struct entry {
    Item item{};
    std::size_t holds = 0;  ///< 0: its owner is gone, and the driver refused to close it
    bool busy = true;       ///< a thread is opening or closing it
    bool outdated = false;  ///< the memory that it was opened for is gone, or its close was refused
  };
  using entries = std::map<Key, entry>;
  using place = typename entries::iterator;

  /// Takes a new hold for `owner` and returns its number, which no other hold ever gets.
  ///
  /// `find(entries&)` returns the place of an item that conflicts with a new one, or the end. Once that item is open,
  /// `fits(place)` returns an error, or success to share it. An item that does not fit, and has no hold, is closed by
  /// `close(const Key&, Item&)`; before the call opens an item, it tries to close all other items without a hold.
  /// `open(std::optional<Item>& left)` returns a new item; if it must not return the item and the driver refuses to
  /// close it, `open` moves it to `left`. `use(place)` gets the item.
  /// close, it leaves there. `use(place)` gets the item.
  template <class Find, class Fits, class Open, class Use, class Close>
  [[nodiscard]] result<std::uint64_t> take(const void* owner, const Key& key, Find&& find, Fits&& fits, Open&& open,
                                           Use&& use, Close&& close) noexcept try {
    entries made;  // allocated before any step that would have to be undone
    const place fresh = made.try_emplace(key).first;
    std::unique_lock guard(mutex_);
    for (place there = find(entries_); there != entries_.end(); there = find(entries_)) {
      if (there->second.busy) {
        changed_.wait(guard);  // the item may be gone afterwards
        continue;
      }
      if (auto fit = fits(there); !fit) {
        if (there->second.holds > 0) return tl::unexpected(fit.error());
        if (auto closed = close_item(guard, there, close); !closed) return tl::unexpected(closed.error());
        continue;
      }
      const auto number = note(owner, there);
      use(there);
      return number;
    }
    const auto number = note(owner, fresh);
    entries_.merge(made);
    guard.unlock();
    close_unheld(close, now_and_then);
    std::optional<Item> left;
    auto opened = open(left);
    guard.lock();
    changed_.notify_all();
    fresh->second.busy = false;
    if (!opened) {
      disown(holders_.find(number));
      if (left) {
        fresh->second.item = std::move(*left);
        fresh->second.outdated = true;
      } else {
        entries_.erase(fresh);
      }
      return tl::unexpected(opened.error());
    }
    fresh->second.item = std::move(*opened);
    use(fresh);
    return number;
  } catch (const std::bad_alloc&) {
    return fail_errno(errc::out_of_resources, ENOMEM, "no memory for pinfold's own records");
  }

  /// Gives one hold back; the last calls `close(const Key&, Item&)`. `invalid_argument` if this number is not held. A
  /// failed close changes nothing.
  template <class Close>
  [[nodiscard]] result<void> give_back(std::uint64_t number, Close&& close) noexcept {
    std::unique_lock guard(mutex_);
    const auto found = holders_.find(number);
    if (found == holders_.end() || found->second.of->second.busy)
      return fail(errc::invalid_argument, "this registration is not open");
    const place there = found->second.of;
    if (there->second.holds > 1) {
      --there->second.holds;
      holders_.erase(found);
      return {};
    }
    auto closed = close_item(guard, there, close);
    if (closed) holders_.erase(number);
    return closed;
  }

  /// Records that the memory of this hold's item is gone. Makes no call. Does nothing if this number is not held.
  void outdate(std::uint64_t number) noexcept {
    const std::scoped_lock guard(mutex_);
    const auto found = holders_.find(number);
    if (found != holders_.end()) found->second.of->second.outdated = true;
  }

  /// Gives one hold back, in any case: an item that the driver refuses to close stays open without a hold. The number
  /// must be held.
  template <class Close>
  void give_up(std::uint64_t number, Close&& close) noexcept {
    if (give_back(number, close)) return;
    const std::scoped_lock guard(mutex_);
    disown(holders_.find(number));
  }

  /// Gives up all holds of `owner`. Each such call tries again to close items without a hold, of all owners.
  template <class Close>
  void give_back_all(const void* owner, Close&& close) noexcept {
    close_unheld(close, {});
    while (const auto number = any_of(owner)) give_up(number, close);
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

  template <class Close>
  [[nodiscard]] result<void> close_item(std::unique_lock<std::mutex>& guard, place there, Close&& close) noexcept {
    there->second.busy = true;
    guard.unlock();
    auto closed = close(there->first, there->second.item);
    guard.lock();
    changed_.notify_all();
    there->second.busy = false;
    there->second.outdated = true;
    any_unheld_ = any_unheld_ || (!closed && there->second.holds == 0);
    if (closed) entries_.erase(there);
    return closed;
  }

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

  void disown(typename std::map<std::uint64_t, holder>::iterator one) noexcept {
    if (one == holders_.end()) return;
    any_unheld_ = any_unheld_ || one->second.of->second.holds == 1;
    --one->second.of->second.holds;
    holders_.erase(one);
  }

  static constexpr std::chrono::milliseconds now_and_then{100};

  /// Tries to close items without a hold, unless the driver has refused that less than `pause` ago.
  template <class Close>
  void close_unheld(Close&& close, std::chrono::milliseconds pause) noexcept {
    std::unique_lock guard(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (!any_unheld_ || now < refused_at_ + pause) return;
    any_unheld_ = false;
    for (place next = entries_.begin(); next != entries_.end();) {
      if (next->second.busy || next->second.holds > 0) {
        ++next;
        continue;
      }
      const Key key = next->first;  // the mutex is unlocked meanwhile
      if (!close_item(guard, next, close)) refused_at_ = now;
      next = entries_.upper_bound(key);
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  entries entries_;
  std::map<std::uint64_t, holder> holders_;
  std::uint64_t last_number_ = 0;
  bool any_unheld_ = false;                             ///< whether some item may have no hold
  std::chrono::steady_clock::time_point refused_at_{};  ///< when the driver last refused to close such an item
};

}  // namespace pinfold::cuda
