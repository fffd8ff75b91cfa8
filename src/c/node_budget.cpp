// SPDX-License-Identifier: BSD-3-Clause
#include "c/failure.hpp"
#include "c/structure.hpp"

#include <pinfold/node_budget.h>
#include <pinfold/node_budget.hpp>

#include <algorithm>
#include <memory>
#include <utility>

struct pinfold_node_budget {
  std::shared_ptr<pinfold::node_budget> of;
};

namespace {

using namespace pinfold;

static_assert(static_cast<int>(node_budget_bound::account) == PINFOLD_BOUND_ACCOUNT &&
              static_cast<int>(node_budget_bound::memlock) == PINFOLD_BOUND_MEMLOCK &&
              static_cast<int>(node_budget_bound::cgroup) == PINFOLD_BOUND_CGROUP);

int refuse_null() noexcept { return c::refuse(errc::invalid_argument, "the node's budget or its name is null"); }
int refuse_size() noexcept { return c::refuse(errc::invalid_argument, "the structure is null, or has a wrong size"); }

result<node_budget_options> as_cpp(const pinfold_node_budget_options* given) {
  pinfold_node_budget_options known{};
  if (given != nullptr && !c::read(given, known))
    return fail(errc::invalid_argument, "the options of the node's budget have a wrong size or unknown members");
  node_budget_options options;
  options.max_bytes = known.max_bytes;
  if (known.member != nullptr) options.member = known.member;
  options.shared = known.separate == 0;
  options.pins = known.no_pins == 0;
  return options;
}

pinfold_node_budget_member as_c(const node_budget_member& one) noexcept {
  constexpr std::int64_t most = UINT32_MAX;
  pinfold_node_budget_member member{};
  member.size = sizeof member;
  member.pid = one.pid;
  member.waiting_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(one.waiting.count(), 0, most));
  member.name = one.name.c_str();
  member.bytes = one.bytes;
  member.asked = one.asked;
  member.refused = one.refused;
  return member;
}

}  // namespace

extern "C" {

int pinfold_node_budget_open(const char* name, const pinfold_node_budget_options* options,
                             pinfold_node_budget** budget) {
  if (budget != nullptr) *budget = nullptr;
  if (budget == nullptr || name == nullptr) return refuse_null();
  return c::guarded([&]() -> result<void> {
    auto converted = as_cpp(options);
    if (!converted) return tl::unexpected(converted.error());
    auto opened = node_budget::open(name, *std::move(converted));
    if (!opened) return tl::unexpected(opened.error());
    *budget = new pinfold_node_budget{*std::move(opened)};  // NOLINT(bugprone-unhandled-exception-at-new): as above
    return {};
  });
}

void pinfold_node_budget_close(pinfold_node_budget* budget) { delete budget; }

int pinfold_node_budget_take(pinfold_node_budget* budget, size_t bytes) {
  if (budget == nullptr) return refuse_null();
  return budget->of->take(bytes) ? PINFOLD_OK : c::refuse(errc::over_budget, "the node's budget is used up");
}

int pinfold_node_budget_give(pinfold_node_budget* budget, size_t bytes) {
  if (budget == nullptr) return refuse_null();
  budget->of->give(bytes);
  return PINFOLD_OK;
}

int pinfold_node_budget_trim(pinfold_node_budget* budget) {
  if (budget == nullptr) return refuse_null();
  budget->of->trim();
  return PINFOLD_OK;
}

int pinfold_node_budget_set_max_bytes(pinfold_node_budget* budget, size_t bytes) {
  return budget == nullptr ? refuse_null() : c::as_code(budget->of->set_max_bytes(bytes));
}

int pinfold_node_budget_read(const pinfold_node_budget* budget, pinfold_node_budget_state* state) {
  if (budget == nullptr) return refuse_null();
  return c::guarded([&]() -> result<void> {
    const pinfold_node_budget_state now{sizeof now, budget->of->max_bytes(), budget->of->used_bytes(),
                                        budget->of->bytes_here(), budget->of->members().size()};
    if (!c::write(now, state)) return fail(errc::invalid_argument, "the structure is null, or has a wrong size");
    return {};
  });
}

int pinfold_node_budget_members(const pinfold_node_budget* budget,
                                int (*each)(void* self, const pinfold_node_budget_member* member), void* self) {
  if (budget == nullptr) return refuse_null();
  if (each == nullptr) return c::refuse(errc::invalid_argument, "the function is null");
  return c::guarded([&]() -> result<void> {
    for (const auto& one : budget->of->members()) {
      const auto member = as_c(one);
      if (each(self, &member) != 0) break;
    }
    return {};
  });
}

int pinfold_node_budget_read_limits(const pinfold_node_budget* budget, pinfold_node_budget_limits* limits) {
  if (budget == nullptr) return refuse_null();
  const auto now = budget->of->limits();
  const pinfold_node_budget_limits plain{
      sizeof plain,   now.account_max, now.account_used, now.memlock_max, now.memlock_used,
      now.cgroup_max, now.cgroup_used, now.process_max,  now.room,        static_cast<std::uint32_t>(now.binds)};
  return c::write(plain, limits) ? PINFOLD_OK : refuse_size();
}

int pinfold_node_budget_remove(const char* name) {
  return name == nullptr ? refuse_null() : c::as_code(node_budget::remove(name));
}

}  // extern "C"
