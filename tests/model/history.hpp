// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random histories of a cache: its setup, and the operations on it step by step. A `Shape` says which kinds of steps
/// there are and how often, and what a setup chooses from.
#pragma once

#include <pinfold/options.hpp>

#include <rapidcheck.h>

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <utility>
#include <vector>

namespace pinfold::testing {

enum class kind : std::uint8_t {
  acquire,
  persistent,
  bypass,
  batch,
  release,
  release_elsewhere,
  find,
  allocate,
  invalidate,
  announce,
  unpersist,
  kill,
  drop,
  fail_opens,
  fail_closes,
  refuse_unions,
  progress,
  flush,
  quiesce,
  evict,
  restore,
  ticket,
  go_on,
  ask,
  cancel,
  renew,
  take,
  drop_ticket,
  set,
  late_member,
  end,
};

/// One step. Its numbers are interpreted by the state at that time, so every history is a legal one.
struct step {
  kind what = kind::acquire;
  std::uint32_t a = 0;
  std::uint32_t b = 0;

  friend std::ostream& operator<<(std::ostream& out, const step& s) {
    static constexpr const char* names[] = {
        "acquire", "persistent", "bypass",      "batch",         "release",   "release_elsewhere",
        "find",    "allocate",   "invalidate",  "announce",      "unpersist", "kill",
        "drop",    "fail_opens", "fail_closes", "refuse_unions", "progress",  "flush",
        "quiesce", "evict",      "restore",     "ticket",        "go_on",     "ask",
        "cancel",  "renew",      "take",        "drop_ticket",   "set",       "late_member",
        "end"};
    return out << names[static_cast<int>(s.what)] << '(' << s.a << ',' << s.b << ')';
  }
};

struct setup {
  cache_options options;
  std::size_t capacity = SIZE_MAX;  ///< of the driver

  friend std::ostream& operator<<(std::ostream& out, const setup& s) {
    return out << (s.options.retain ? "retain" : "no-retain") << " max_bytes=" << s.options.max_bytes
               << " max_count=" << s.options.max_count << " full=" << static_cast<int>(s.options.full)
               << " closes=" << static_cast<int>(s.options.closes) << " capacity=" << s.capacity
               << " merge=" << static_cast<int>(s.options.merge) << " merge_limit=" << s.options.merge_limit
               << (s.options.serial ? " serial" : "");
  }
};

template <class Shape>
struct step_of : step {};
template <class Shape>
struct setup_of : setup {};

using weighted_kinds = std::initializer_list<std::pair<std::size_t, kind>>;

struct import_history {
  using enum kind;
  static constexpr weighted_kinds kinds = {
      {30, acquire}, {20, release}, {1, release_elsewhere}, {5, find},        {12, allocate}, {4, invalidate},
      {1, kill},     {2, drop},     {3, fail_opens},        {3, fail_closes}, {2, progress},  {2, flush},
      {1, quiesce},  {2, evict}};
  static constexpr std::initializer_list<std::size_t> max_counts = {unlimited, unlimited, 1, 3, 5};
  static constexpr std::initializer_list<std::size_t> max_bytes = {unlimited, unlimited, 192, 512};
  static constexpr std::initializer_list<merge_policy> merges = {merge_policy::none};
  static rc::Gen<bool> retain() { return rc::gen::arbitrary<bool>(); }
};

struct local_history {
  using enum kind;
  static constexpr weighted_kinds kinds = {
      {30, acquire},      {2, persistent}, {3, bypass},   {4, batch},     {22, release},   {1, release_elsewhere},
      {5, find},          {4, invalidate}, {3, announce}, {2, unpersist}, {3, fail_opens}, {3, fail_closes},
      {1, refuse_unions}, {2, progress},   {2, flush},    {2, quiesce},   {2, evict},      {3, restore}};
  static constexpr std::initializer_list<std::size_t> max_counts = {unlimited, unlimited, 2, 4};
  static constexpr std::initializer_list<std::size_t> max_bytes = {unlimited, unlimited, 100, 300};
  static constexpr std::initializer_list<merge_policy> merges = {merge_policy::none, merge_policy::none,
                                                                 merge_policy::rights, merge_policy::overlaps};
  static rc::Gen<bool> retain() { return rc::gen::weightedElement<bool>({{3, true}, {1, false}}); }
};

/// Of two caches of local memory, with work in the background and sets.
struct start_up_history : local_history {
  using enum kind;
  static constexpr weighted_kinds kinds = {
      {24, acquire},      {3, persistent}, {2, bypass},      {1, batch},     {18, release},   {1, release_elsewhere},
      {4, find},          {5, invalidate}, {3, announce},    {3, unpersist}, {3, fail_opens}, {3, fail_closes},
      {1, refuse_unions}, {2, progress},   {2, flush},       {5, quiesce},   {3, evict},      {8, restore},
      {8, ticket},        {24, go_on},     {8, ask},         {4, cancel},    {5, renew},      {3, take},
      {2, drop_ticket},   {8, set},        {6, late_member}, {1, end}};
  static constexpr std::initializer_list<std::size_t> max_counts = {unlimited, unlimited, 3, 6};
  static constexpr std::initializer_list<merge_policy> merges = {merge_policy::none};
};

}  // namespace pinfold::testing

namespace rc {

template <class Shape>
struct Arbitrary<pinfold::testing::step_of<Shape>> {
  static Gen<pinfold::testing::step_of<Shape>> arbitrary() {
    using made = pinfold::testing::step_of<Shape>;
    const auto number = gen::inRange<std::uint32_t>(0, 1U << 16U);
    return gen::build<made>(gen::set(&made::what, gen::weightedElement<pinfold::testing::kind>(Shape::kinds)),
                            gen::set(&made::a, number), gen::set(&made::b, number));
  }
};

template <class Shape>
struct Arbitrary<pinfold::testing::setup_of<Shape>> {
  static Gen<pinfold::testing::setup_of<Shape>> arbitrary() {
    return gen::exec([] {
      using namespace pinfold;
      pinfold::testing::setup_of<Shape> made;
      made.options.retain = *Shape::retain();
      made.options.max_count = *gen::elementOf(std::vector<std::size_t>(Shape::max_counts));
      made.options.max_bytes = *gen::elementOf(std::vector<std::size_t>(Shape::max_bytes));
      made.options.full = *gen::element(when_full::fail, when_full::bypass);
      made.options.closes = *gen::element(close_policy::immediate, close_policy::deferred);
      made.options.merge = *gen::elementOf(std::vector<merge_policy>(Shape::merges));
      made.options.merge_limit = *gen::elementOf(std::vector<std::size_t>{unlimited, 20, 100});
      made.options.serial = *gen::arbitrary<bool>();
      made.capacity = *gen::elementOf(std::vector<std::size_t>{SIZE_MAX, SIZE_MAX, 2, 4});
      return made;
    });
  }
};

}  // namespace rc
