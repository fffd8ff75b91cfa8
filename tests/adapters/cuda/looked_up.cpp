// SPDX-License-Identifier: BSD-3-Clause
// Not linked with the driver's library, but loads it later: with CLIENT_BY_DLSYM as programs do, with
// CLIENT_BY_PROC_ADDRESS as the CUDA runtime does, or else a plug-in that is linked with it.
#include "adapters/cuda/client.hpp"

#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

namespace {

void* load(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <class Function>
void set(Function*& function, void* found, const char* name) {
  if (found == nullptr) throw std::runtime_error(name);
  std::memcpy(&function, &found, sizeof found);
}

}  // namespace

#if defined(CLIENT_BY_DLSYM)

client::functions client::find() {
  void* const library = load("libcuda.so.1");
  functions found;
#define CLIENT_LOOK_UP(symbol, name, version, arguments) set(found.symbol, dlsym(library, #symbol), #symbol);
  CLIENT_FUNCTIONS(CLIENT_LOOK_UP)
  return found;
}

#elif defined(CLIENT_BY_PROC_ADDRESS)

namespace {

using getter = client::result(const char*, void**, int, std::uint64_t, int*);

void* ask(getter* get, const char* name, int version) {
  void* found = nullptr;
  return get(name, &found, version, 0, nullptr) == 0 ? found : nullptr;
}

}  // namespace

client::functions client::find() {
  getter* get = nullptr;
  set(get, dlsym(load("libcuda.so.1"), "cuGetProcAddress_v2"), "cuGetProcAddress_v2");
  functions found;
#define CLIENT_LOOK_UP(symbol, name, version, arguments) set(found.symbol, ask(get, name, version), #symbol);
  CLIENT_FUNCTIONS(CLIENT_LOOK_UP)
  return found;
}

#else

client::functions client::find() {
  void (*fill)(functions&) = nullptr;
  set(fill, dlsym(load(CLIENT_PLUGIN), "fill"), "fill");
  functions found;
  fill(found);
  return found;
}

#endif
