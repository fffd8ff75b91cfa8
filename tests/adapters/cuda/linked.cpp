// SPDX-License-Identifier: BSD-3-Clause
// Linked with the driver's library: the program itself, or a plug-in of it.
#include "adapters/cuda/client.hpp"

#include <dlfcn.h>
#include <stdexcept>

extern "C" {
#define CLIENT_DECLARATION(symbol, name, version, arguments) client::result symbol arguments;
CLIENT_FUNCTIONS(CLIENT_DECLARATION)
#undef CLIENT_DECLARATION
}

#ifdef CLIENT_PLUGIN
extern "C" __attribute__((visibility("default"))) void fill(client::functions& found) {
  if (dlsym(RTLD_DEFAULT, "fill") == nullptr) throw std::runtime_error("dlsym does not know its caller");
#define CLIENT_CALL(symbol, name, version, arguments) found.symbol = &symbol;
  CLIENT_FUNCTIONS(CLIENT_CALL)
#undef CLIENT_CALL
}
#else
client::functions client::find() {
  functions found;
#define CLIENT_CALL(symbol, name, version, arguments) found.symbol = &symbol;
  CLIENT_FUNCTIONS(CLIENT_CALL)
#undef CLIENT_CALL
  return found;
}
#endif
