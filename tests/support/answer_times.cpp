// SPDX-License-Identifier: BSD-3-Clause
#include "support/answer_times.hpp"

namespace pinfold::testing {
namespace {

[[maybe_unused]] const bool answer_times_are_set = (set_answer_times(ample_answer_time), true);

}  // namespace
}  // namespace pinfold::testing
