// SPDX-License-Identifier: BSD-3-Clause
#include "c/failure.hpp"

#include <pinfold/remote_key.h>
#include <pinfold/remote_key.hpp>

#include <algorithm>
#include <span>

struct pinfold_remote_keys {
  pinfold::remote_key_table table;
};

namespace pinfold::c {

namespace {

static_assert(remote_key_wire_bytes == PINFOLD_REMOTE_KEY_WIRE_BYTES);

remote_key_token token_of(const pinfold_remote_key& plain) noexcept {
  return {plain.address, plain.length, plain.key, plain.generation, plain.slot};
}
pinfold_remote_key plain_of(const remote_key_token& token) noexcept {
  return {token.address, token.length, token.key, token.generation, token.slot, 0};
}

int write_token(const result<remote_key_token>& made, pinfold_remote_key* token) noexcept {
  if (!made) return refuse(made.error());
  *token = plain_of(*made);
  return PINFOLD_OK;
}

int refuse_null() noexcept { return refuse(errc::invalid_argument, "an argument is null"); }

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_remote_keys_create(size_t slots, pinfold_remote_keys** keys) {
  using namespace pinfold;
  if (keys == nullptr) return c::refuse_null();
  *keys = nullptr;
  return c::guarded([&]() -> result<void> {
    auto made = remote_key_table::create(slots);
    if (!made) return tl::unexpected(made.error());
    *keys = new pinfold_remote_keys{*std::move(made)};
    return {};
  });
}

void pinfold_remote_keys_destroy(pinfold_remote_keys* keys) { delete keys; }

int pinfold_remote_keys_words(const pinfold_remote_keys* keys, const uint64_t** words, size_t* count) {
  if (keys == nullptr || words == nullptr || count == nullptr) return pinfold::c::refuse_null();
  const auto all = keys->table.words();
  *words = all.data();
  *count = all.size();
  return PINFOLD_OK;
}

int pinfold_remote_key_issue(pinfold_remote_keys* keys, uint64_t address, uint64_t length, uint64_t key,
                             pinfold_remote_key* token) {
  if (keys == nullptr || token == nullptr) return pinfold::c::refuse_null();
  return pinfold::c::write_token(keys->table.issue(address, length, key), token);
}

int pinfold_remote_key_withdraw(pinfold_remote_keys* keys, const pinfold_remote_key* token) {
  if (keys == nullptr || token == nullptr) return pinfold::c::refuse_null();
  return pinfold::c::as_code(keys->table.withdraw(pinfold::c::token_of(*token)));
}

int pinfold_remote_key_is_current(const pinfold_remote_key* token, const uint64_t* words, size_t count) {
  if (token == nullptr || (words == nullptr && count > 0)) return pinfold::c::refuse_null();
  return pinfold::is_current(pinfold::c::token_of(*token), {words, count}) ? 1 : 0;
}

int pinfold_remote_key_encode(const pinfold_remote_key* token, void* wire, size_t room) {
  using namespace pinfold;
  if (token == nullptr || wire == nullptr) return c::refuse_null();
  if (room < remote_key_wire_bytes) return c::refuse(errc::invalid_argument, "there is no room for the wire form");
  const auto bytes = encode(c::token_of(*token));
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(wire));
  return PINFOLD_OK;
}

int pinfold_remote_key_decode(const void* wire, size_t bytes, pinfold_remote_key* token) {
  using namespace pinfold;
  if (wire == nullptr || token == nullptr) return c::refuse_null();
  return c::write_token(decode_remote_key({static_cast<const std::byte*>(wire), bytes}), token);
}

}  // extern "C"
