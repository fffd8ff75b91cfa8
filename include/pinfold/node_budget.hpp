// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A pin budget of the whole node: a named account in shared memory, from which caches of several processes take room.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/limits.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold {

namespace node {
class membership;
}

/// Options of `node_budget::open`.
struct node_budget_options {
  /// The account's maximum in bytes, a multiple of 4096 or rounded down to one; at least 4096. The first member sets
  /// it, and later members have to give the same. 0: the maximum that the account has.
  std::size_t max_bytes = 0;
  std::string member{};  ///< this process's name in the list of members, at most 31 bytes; empty: the program's name
  bool shared = true;    ///< return the object that this process has of this account already, if it has one
  bool pins = true;      ///< RLIMIT_MEMLOCK and the cgroup's memory.max limit this process's part, too
};

/// One member of an account: a process that has it open.
struct node_budget_member {
  std::int32_t pid = 0;                  ///< as the member sees itself, in its own PID namespace
  std::string name;                      ///< from its options
  std::size_t bytes = 0;                 ///< taken from the account, unused portions included
  std::chrono::milliseconds waiting{0};  ///< how long its longest request has been waiting for room; 0: none waits
  std::size_t asked = 0;                 ///< bytes of the last request that found no room
  std::uint64_t refused = 0;             ///< requests that got no room
  bool ended = false;                    ///< it died, and what it had has not come back yet
};

/// An account at one moment.
struct node_budget_state {
  std::size_t max_bytes = 0;                ///< the account's maximum
  std::size_t used_bytes = 0;               ///< taken by all members
  std::vector<node_budget_member> members;  ///< in the order of their slots
};

/// The limit that binds a process.
enum class node_budget_bound : std::uint8_t {
  account,  ///< the account's maximum
  memlock,  ///< RLIMIT_MEMLOCK of the process
  cgroup,   ///< memory.max of its cgroup, or of one above that
};

/// The limits of a process, in bytes; `unlimited` where there is none.
struct node_budget_limits {
  std::size_t account_max = unlimited;                   ///< the account's maximum
  std::size_t account_used = 0;                          ///< taken by all members
  std::size_t memlock_max = unlimited;                   ///< RLIMIT_MEMLOCK; `unlimited` with CAP_IPC_LOCK
  std::size_t memlock_used = 0;                          ///< what the process has locked (VmLck), pinned (VmPin)
  std::size_t cgroup_max = unlimited;                    ///< the memory.max with the least room, of cgroup v2
  std::size_t cgroup_used = 0;                           ///< memory.current beside it
  std::size_t process_max = unlimited;                   ///< the least of the maxima
  node_budget_bound binds = node_budget_bound::account;  ///< the limit with the least room
  std::size_t room = 0;                                  ///< under that limit
};

/// An account that the processes of one user on this host share: the file `/dev/shm/pinfold-<uid>-<name>`. The bytes
/// that all members have taken never exceed its maximum. `cache_options::node_budget` makes a cache take room from it,
/// beside its own budget; caches with the same object share a membership. `docs/use/node-budget.md` explains it.
///
/// A process that dies is no longer a member: the room that it had taken comes back when another member needs room, or
/// opens the account. In a child of fork(2) the parent's object takes nothing and gives nothing back; the child opens
/// the account itself.
///
/// Thread-safe. Only `open` waits for another process.
class PINFOLD_EXPORT node_budget {
 public:
  /// Becomes a member of the account, which the first member makes. With `shared`, a process is a member once, and the
  /// other options are those of its first call. Throws `std::bad_alloc`.
  ///
  /// Errors: `invalid_argument` (a name that is empty, longer than 63 bytes, or not of letters, digits, `_`, `-` and
  /// `.`; a maximum below 4096, or other than the account has; no maximum for an account that does not exist),
  /// `invalid_handle` (the file is damaged, truncated, foreign or of another version), `not_permitted`,
  /// `out_of_resources` (256 members, no memory), `timed_out` (another process was stopped while it opened the
  /// account).
  [[nodiscard]] static result<std::shared_ptr<node_budget>> open(std::string_view name,
                                                                 node_budget_options options = {});

  /// Opens an account that is written as `name` or `name:maximum`, the maximum as `parse_size` reads it. Throws
  /// `std::bad_alloc`. Errors as of `open`.
  [[nodiscard]] static result<std::shared_ptr<node_budget>> open_text(std::string_view text);

  /// Returns an account's state, without becoming a member. Throws `std::bad_alloc`. Errors as of `open`.
  [[nodiscard]] static result<node_budget_state> inspect(std::string_view name);

  /// Returns the path of the account's file, which need not exist. Throws `std::bad_alloc`. Errors: `invalid_argument`
  /// for a name that no account can have.
  [[nodiscard]] static result<std::string> file_of(std::string_view name);

  /// Removes the account's name. Members go on with it; the next `open` makes a new account. Errors:
  /// `invalid_argument`, `not_permitted`, `driver_error` (with `ENOENT`: there is none of that name).
  static result<void> remove(std::string_view name) noexcept;

  /// Gives back all that this membership has taken. Registrations that the driver refuses to close are counted until
  /// then.
  ~node_budget();
  node_budget(const node_budget&) = delete;
  node_budget& operator=(const node_budget&) = delete;

  /// Takes room, all or nothing, for memory that the program pins itself. Returns false when there is none.
  [[nodiscard]] bool take(std::size_t bytes) noexcept;
  /// Gives back room that was taken, and no more than that.
  void give(std::size_t bytes) noexcept;
  /// Gives back what is taken in advance and not used.
  void trim() noexcept;

  /// Changes the maximum for all members. Below what is taken, no member gets room until enough was given back. Errors:
  /// `invalid_argument`, `closed` (in a child of fork).
  result<void> set_max_bytes(std::size_t bytes) noexcept;

  /// Returns the account's name.
  [[nodiscard]] const std::string& name() const noexcept;
  /// Returns the account's maximum.
  [[nodiscard]] std::size_t max_bytes() const noexcept;
  /// Returns the bytes that all members have taken, dead ones included until their room has come back.
  [[nodiscard]] std::size_t used_bytes() const noexcept;
  /// Returns the bytes that this membership uses, without what it took in advance.
  [[nodiscard]] std::size_t bytes_here() const noexcept;

  /// Returns the members. Throws `std::bad_alloc`.
  [[nodiscard]] std::vector<node_budget_member> members() const;

  /// Reads the limits of this process, and returns them. With `node_budget_options::pins` the maxima that were read
  /// last apply: `open` reads them, too.
  [[nodiscard]] node_budget_limits limits() const noexcept;

  /// Returns what the engine needs. Not for users.
  [[nodiscard]] node::membership& inside() const noexcept { return *inside_; }

 private:
  node_budget(std::unique_ptr<node::membership> inside, bool pins) noexcept;
  std::unique_ptr<node::membership> inside_;
  std::atomic<std::size_t> taken_{0};  // by `take`, and not given back
  bool pins_;
};

}  // namespace pinfold
