// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The membership of this process in an account. `docs/understand/protocol.md` (*The node's budget*) explains why the
/// total is correct.
#pragma once

#include "node_budget/process.hpp"
#include "node_budget/shared_file.hpp"
#include "os/mutex.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace pinfold {
class node_budget;
}

namespace pinfold::node {

/// A request that waits for room.
struct waiting_request {
  std::size_t bytes = 0;
  std::int64_t since = 0;      ///< monotonic clock, in ns
  std::int64_t last_turn = 0;  ///< the number of its last turn
  int turns = 0;               ///< how many turns it has had
  waiting_request* next = nullptr;
};

/// Which waiting request has its turn now: room that other requests take is room that it lacks.
enum class turn : std::uint8_t {
  none,
  own,      ///< the request of the caller
  another,  ///< another request, of any member, and there is no room for both
};

/// Returns whether the owner of the slot has died, by the rule by which other members take back its room.
[[nodiscard]] bool has_ended(const shared_file& file, const slot& one, std::uint64_t own_namespace) noexcept;

/// A slot in an account, and the room taken with it. Takes more from the account than it needs, a *portion*, so that
/// most requests stay in this process. Thread-safe, and never waits for another process after `join`. In a child of
/// fork(2) the membership has been left, and changes nothing.
class membership {
 public:
  /// Becomes a member. Throws `std::bad_alloc`. `max_units` 0: takes the account's maximum.
  [[nodiscard]] static result<std::unique_ptr<membership>> join(std::string name, std::uint64_t max_units,
                                                                std::string_view as);
  ~membership();
  membership(const membership&) = delete;
  membership& operator=(const membership&) = delete;

  [[nodiscard]] bool take(std::size_t bytes) noexcept PINFOLD_EXCLUDES(mutex_);
  void give(std::size_t bytes) noexcept PINFOLD_EXCLUDES(mutex_);
  void trim() noexcept PINFOLD_EXCLUDES(mutex_);

  /// Takes back the room of dead members. Returns whether the total has decreased. Tries for at most 5 ms while another
  /// member takes back, or stops in a change.
  bool reclaim() noexcept;
  /// As `reclaim`, but with one attempt, and only if the last attempt was at least 10 ms ago.
  bool reclaim_sometimes() noexcept;
  /// Returns whether `take` would find room now.
  [[nodiscard]] bool may_fit(std::size_t bytes) noexcept PINFOLD_EXCLUDES(mutex_);
  /// Returns whether other members want room, while this one has more than its even share: `max` / members.
  [[nodiscard]] bool crowds_others() const noexcept;

  /// Gives back the room taken in advance, if other members want room.
  void yield_spare() noexcept PINFOLD_EXCLUDES(mutex_);

  /// Asks the other members to make room, for the next tenth of a second.
  void want(std::size_t bytes) noexcept;
  /// As `want`, if this member has less than its even share.
  void want_share(std::size_t bytes) noexcept;
  /// Call these around each request that found no room at first: after the last one, at most portions stay unused.
  void begin_request() noexcept { requests_.fetch_add(1, std::memory_order_relaxed); }
  void end_request() noexcept PINFOLD_EXCLUDES(mutex_);
  void begin_waiting(waiting_request& request) noexcept;
  void end_waiting(waiting_request& request) noexcept;
  /// Returns whose turn it is, for a request for `bytes`. `request` is null if the request does not wait.
  [[nodiscard]] turn whose_turn(std::size_t bytes, const waiting_request* request) noexcept;
  /// Counts a turn of the request, if it has one. Called often while the request waits.
  void note_turn(waiting_request& request) noexcept;
  void note_refusal(const waiting_request& request) noexcept;

  /// Returns whether the account's name still refers to the file of this membership.
  [[nodiscard]] bool still_named() const noexcept { return !left() && file_.is_at(path_); }
  /// Limits this process's part, in addition to the account's maximum.
  void limit_process(std::size_t bytes) noexcept { process_max_.store(bytes, std::memory_order_relaxed); }
  result<void> set_max(std::uint64_t max_units) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const account& shared() const noexcept { return *file_; }
  /// Returns whether the owner of that slot has died.
  [[nodiscard]] bool has_ended(const slot& one) const noexcept {
    return &one != mine_ && node::has_ended(file_, one, self_.namespace_inode);
  }
  [[nodiscard]] std::size_t max_bytes() const noexcept;
  [[nodiscard]] std::size_t process_max() const noexcept { return process_max_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t used_bytes() const noexcept;
  [[nodiscard]] std::size_t bytes_here() const noexcept { return in_use_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t members() const noexcept;

 private:
  friend class forks;
  membership(std::string name, std::string path, shared_file file) noexcept
      : name_(std::move(name)), path_(std::move(path)), file_(std::move(file)) {}

  [[nodiscard]] static result<std::unique_ptr<membership>> try_join(const std::string& name, const std::string& path,
                                                                    std::uint64_t max_units, std::string_view as);
  [[nodiscard]] result<void> agree(std::uint64_t max_units) noexcept;
  [[nodiscard]] result<void> claim_slot(std::string_view as) noexcept;
  [[nodiscard]] result<void> end_opening() noexcept;
  bool reclaim_now(std::int64_t until_ns) noexcept;
  [[nodiscard]] bool left() const noexcept { return left_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool still_mine() const noexcept;
  [[nodiscard]] bool add(std::int64_t units) noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool draw(std::size_t missing) noexcept PINFOLD_REQUIRES(mutex_);
  void give_spare(std::size_t keep) noexcept PINFOLD_REQUIRES(mutex_);
  void keep_portions() noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] std::size_t portion() const noexcept;
  [[nodiscard]] bool wanted() const noexcept;
  struct crowd {
    std::size_t members = 0;  ///< this one included
    std::size_t wanting = 0;
  };
  [[nodiscard]] crowd others_that_want() const noexcept;
  [[nodiscard]] waiting_request* next_in_turn() const noexcept;
  void list_waiting() noexcept;
  [[nodiscard]] const slot* first_in_turn(std::int64_t now) const noexcept;

  const std::string name_;
  const std::string path_;
  shared_file file_;
  const process_id self_ = process_id::here();
  slot* mine_ = nullptr;
  std::uint64_t owner_ = 0;
  std::atomic<bool> left_{false};  // in a child
  std::atomic<std::size_t> process_max_{SIZE_MAX};
  std::atomic<std::size_t> in_use_{0};         // written with the mutex held
  std::atomic<std::size_t> known_members_{1};  // at the last count
  std::atomic<std::int64_t> reclaimed_at_{0};
  std::atomic<std::size_t> requests_{0};  // between `begin_request` and `end_request`

  os::mutex mutex_;
  std::size_t spare_ PINFOLD_GUARDED_BY(mutex_) = 0;

  std::mutex waiting_mutex_;
  waiting_request* oldest_ = nullptr;  // of this process; guarded by `waiting_mutex_`
  std::int64_t no_turn_before_ = 0;    // guarded by `waiting_mutex_`

  std::int64_t tried_at_ = 0;  // when `reclaim` last began; guarded by `reclaiming_`
  std::mutex reclaiming_;      // locks belong to the open file: one thread at a time takes those of other members

  // Guarded by the mutex of `forks`:
  membership* next_ = nullptr;
  std::weak_ptr<node_budget> owner_object_;
};

}  // namespace pinfold::node
