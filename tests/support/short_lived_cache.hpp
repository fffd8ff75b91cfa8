// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A second cache over the same memory, beside the one under test. It is destroyed and made again while threads use
/// both, so threads keep hints to records that now belong to another cache, or to none.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace pinfold::testing {

template <class Cache>
class short_lived_cache {
 public:
  explicit short_lived_cache(std::function<std::unique_ptr<Cache>()> make) : make_(std::move(make)), cache_(make_()) {}

  /// Calls `with(cache)`, and does not destroy the cache meanwhile.
  template <class F>
  void use(F&& with) {
    const std::shared_lock guard(mutex_);
    with(*cache_);
  }

  /// Destroys the cache, calls `check()`, and makes another one.
  template <class F>
  void renew(F&& check) {
    const std::unique_lock guard(mutex_);
    cache_.reset();
    check();
    cache_ = make_();
  }

 private:
  std::function<std::unique_ptr<Cache>()> make_;
  std::shared_mutex mutex_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace pinfold::testing
