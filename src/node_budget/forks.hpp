// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memberships of this process: a child of fork(2) leaves them.
#pragma once

#include "node_budget/membership.hpp"

#include <memory>
#include <string_view>

namespace pinfold::node {

/// A child shares its parent's open files, and so the locks that prove that the parent lives. So a child closes these
/// files at once.
class forks {
 public:
  /// Watches for forks. Held while a file of an account is open and not listed yet: a fork then waits.
  class watch {
   public:
    watch();
    ~watch();
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;
    /// Returns 0 if forks can be watched, else the error. On an error, no account may be opened.
    [[nodiscard]] int refusal() const noexcept;
    void add(membership& one) noexcept;
    void remove(membership& one) noexcept;
    /// Makes `find` return `owner`, which has the membership, while it lives.
    void share(membership& one, const std::shared_ptr<node_budget>& owner) noexcept;
    /// Returns null if no account has that name.
    [[nodiscard]] std::shared_ptr<node_budget> find(std::string_view name) const noexcept;
  };

 private:
  static void in_child() noexcept;
};

}  // namespace pinfold::node
