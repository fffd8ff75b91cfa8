// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of a restoration with one worker, in its simplest form.
#pragma once

#include "model/local_oracle.hpp"

#include <pinfold/restoration.hpp>

#include <optional>

namespace pinfold::testing {

class restoration_oracle {
 public:
  explicit restoration_oracle(local_oracle& in) : in_(&in) { now_.total = in.quiesced().size(); }

  /// Runs the worker until it asks the driver, or ends.
  void run() {
    if (opening_ != nullptr) {
      const auto end = in_->end_open(*opening_);
      if (end == local_oracle::answer::asked_again) return;
      opening_ = nullptr;
      note(end == local_oracle::answer::refused ? oracle::outcome(in_->refusal()) : oracle::outcome());
    }
    while (!cancelled_) {
      const auto next = in_->take_hottest();
      if (!next) break;
      one_ = next->wanted;
      const auto begun = in_->begin_acquire(*next, std::nullopt);
      opening_ = begun.opening;
      if (opening_ != nullptr) return;
      note(begun.refused);
    }
  }
  void cancel() { cancelled_ = true; }

  [[nodiscard]] bool in_driver() const noexcept { return opening_ != nullptr; }
  [[nodiscard]] const restore_progress& now() const noexcept { return now_; }
  [[nodiscard]] const oracle::outcome& failure() const noexcept { return failure_; }

 private:
  void note(oracle::outcome refused) {
    if (!refused && !in_->release(*in_->granted())) refused = errc::driver_error;
    if (!refused) {
      ++now_.restored;
      now_.bytes += one_.size();
    } else if (*refused == errc::over_budget) {
      ++now_.skipped;
    } else {
      ++now_.failed;
      if (!failure_) failure_ = refused;
    }
  }

  local_oracle* in_;
  range one_{};
  oracle::item* opening_ = nullptr;
  restore_progress now_;
  oracle::outcome failure_;
  bool cancelled_ = false;
};

}  // namespace pinfold::testing
